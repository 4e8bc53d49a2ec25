// A product of two 64-bit integers.
#pragma once

namespace headgate::base {

__extension__ using Wide = __int128;
__extension__ using WideUnsigned = unsigned __int128;

}  // namespace headgate::base
