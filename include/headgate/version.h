/* The version of these headers. C and C++ may include it. The library's own version, which may differ if headers and
   library do not belong together, is what hg_version() answers. */
#pragma once

#define HEADGATE_VERSION_MAJOR 0
#define HEADGATE_VERSION_MINOR 1
#define HEADGATE_VERSION_PATCH 0
#define HEADGATE_VERSION "0.1.0"
