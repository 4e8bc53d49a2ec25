// libcurl's functions, each of which loads libcurl when it is first called. With what it depends on it is some thirty
// libraries, which would take as long to load as everything else that a short command does; most commands need none of
// them. Only what we call is here: a function that is missing does not link.
#include <curl/curl.h>
#include <dlfcn.h>

#include <cstdarg>

// The header has these as macros that check types.
#undef curl_easy_setopt
#undef curl_easy_getinfo

namespace {

void* curl_library() {
  static void* const kLibrary = ::dlopen("libcurl.so.4", RTLD_LAZY | RTLD_LOCAL);
  return kLibrary;
}

// Null if it cannot be had; then curl_global_init says so, and nobody goes on.
template <class Function>
Function* find_in_curl(Function*, const char* name) {
  return curl_library() == nullptr ? nullptr : reinterpret_cast<Function*>(::dlsym(curl_library(), name));
}

}  // namespace

// NOLINTNEXTLINE(bugprone-macro-parentheses): a name
#define HEADGATE_CURL(name) static const auto call = find_in_curl(static_cast<decltype(&name)>(nullptr), #name)

extern "C" {

CURLcode curl_global_init(long flags) {
  HEADGATE_CURL(curl_global_init);
  return call == nullptr ? CURLE_FAILED_INIT : call(flags);
}
CURL* curl_easy_init(void) {
  HEADGATE_CURL(curl_easy_init);
  return call();
}
void curl_easy_cleanup(CURL* curl) {
  HEADGATE_CURL(curl_easy_cleanup);
  call(curl);
}
void curl_easy_reset(CURL* curl) {
  HEADGATE_CURL(curl_easy_reset);
  call(curl);
}
const char* curl_easy_strerror(CURLcode code) {
  HEADGATE_CURL(curl_easy_strerror);
  return call == nullptr ? "libcurl.so.4 cannot be loaded" : call(code);
}
// libcurl has chosen these signatures; its enumerations are as large as what they are promoted to.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wvarargs"
// What is set is a long, a pointer or a curl_off_t: each is as large as a pointer and passed as one.
static_assert(sizeof(long) == sizeof(void*) && sizeof(curl_off_t) == sizeof(void*));
CURLcode curl_easy_setopt(CURL* curl, CURLoption option, ...) {
  HEADGATE_CURL(curl_easy_setopt);
  va_list arguments;
  va_start(arguments, option);
  void* value = va_arg(arguments, void*);
  va_end(arguments);
  return call(curl, option, value);
}
CURLcode curl_easy_getinfo(CURL* curl, CURLINFO info, ...) {
  HEADGATE_CURL(curl_easy_getinfo);
  va_list arguments;
  va_start(arguments, info);
  void* into = va_arg(arguments, void*);
  va_end(arguments);
  return call(curl, info, into);
}
#pragma GCC diagnostic pop
CURLHcode curl_easy_header(CURL* curl, const char* name, size_t index, unsigned origin, int request,
                           curl_header** found) {
  HEADGATE_CURL(curl_easy_header);
  return call(curl, name, index, origin, request, found);
}
CURLM* curl_multi_init(void) {
  HEADGATE_CURL(curl_multi_init);
  return call();
}
CURLMcode curl_multi_cleanup(CURLM* multi) {
  HEADGATE_CURL(curl_multi_cleanup);
  return call(multi);
}
CURLMcode curl_multi_add_handle(CURLM* multi, CURL* curl) {
  HEADGATE_CURL(curl_multi_add_handle);
  return call(multi, curl);
}
CURLMcode curl_multi_remove_handle(CURLM* multi, CURL* curl) {
  HEADGATE_CURL(curl_multi_remove_handle);
  return call(multi, curl);
}
CURLMcode curl_multi_perform(CURLM* multi, int* running) {
  HEADGATE_CURL(curl_multi_perform);
  return call(multi, running);
}
CURLMcode curl_multi_poll(CURLM* multi, curl_waitfd extra[], unsigned count, int timeout_ms, int* ready) {
  HEADGATE_CURL(curl_multi_poll);
  return call(multi, extra, count, timeout_ms, ready);
}
CURLMcode curl_multi_wakeup(CURLM* multi) {
  HEADGATE_CURL(curl_multi_wakeup);
  return call(multi);
}
CURLMsg* curl_multi_info_read(CURLM* multi, int* left) {
  HEADGATE_CURL(curl_multi_info_read);
  return call(multi, left);
}
curl_slist* curl_slist_append(curl_slist* list, const char* text) {
  HEADGATE_CURL(curl_slist_append);
  return call(list, text);
}
void curl_slist_free_all(curl_slist* list) {
  HEADGATE_CURL(curl_slist_free_all);
  call(list);
}

}  // extern "C"
