// libpq's functions, each of which loads libpq when it is first called. With Kerberos, LDAP and what these depend on it
// is some twenty libraries, which would take longer to load than most commands take; only a ledger in PostgreSQL needs
// them. All that libpqxx and we call is here: a function that is missing does not link.
#include <dlfcn.h>
#include <libpq-fe.h>

#include <stdexcept>
#include <string>

namespace {

template <class Function>
Function* find_in_libpq(const char* name) {
  static void* const kLibrary = ::dlopen("libpq.so.5", RTLD_LAZY | RTLD_LOCAL);
  void* found = kLibrary == nullptr ? nullptr : ::dlsym(kLibrary, name);
  if (found != nullptr) return reinterpret_cast<Function*>(found);
  const char* why = ::dlerror();
  throw std::runtime_error(std::string("PostgreSQL needs libpq.so.5: ") + (why == nullptr ? name : why));
}

}  // namespace

#define HEADGATE_PQ(result, name, parameters, arguments)            \
  result name parameters {                                          \
    static const auto kCall = find_in_libpq<decltype(name)>(#name); \
    return kCall arguments;                                         \
  }

extern "C" {

HEADGATE_PQ(int, PQbackendPID, (const PGconn* a), (a))
HEADGATE_PQ(int, PQcancel, (PGcancel * a, char* b, int c), (a, b, c))
HEADGATE_PQ(void, PQclear, (PGresult * a), (a))
HEADGATE_PQ(int, PQclientEncoding, (const PGconn* a), (a))
HEADGATE_PQ(char*, PQcmdStatus, (PGresult * a), (a))
HEADGATE_PQ(char*, PQcmdTuples, (PGresult * a), (a))
HEADGATE_PQ(PostgresPollingStatusType, PQconnectPoll, (PGconn * a), (a))
HEADGATE_PQ(PGconn*, PQconnectStart, (const char* a), (a))
HEADGATE_PQ(PGconn*, PQconnectdb, (const char* a), (a))
HEADGATE_PQ(void, PQconninfoFree, (PQconninfoOption * a), (a))
HEADGATE_PQ(PQconninfoOption*, PQconninfoParse, (const char* a, char** b), (a, b))
HEADGATE_PQ(int, PQconsumeInput, (PGconn * a), (a))
HEADGATE_PQ(char*, PQdb, (const PGconn* a), (a))
HEADGATE_PQ(char*, PQencryptPassword, (const char* a, const char* b), (a, b))
HEADGATE_PQ(int, PQendcopy, (PGconn * a), (a))
HEADGATE_PQ(char*, PQerrorMessage, (const PGconn* a), (a))
HEADGATE_PQ(unsigned char*, PQescapeByteaConn, (PGconn * a, const unsigned char* b, size_t c, size_t* d), (a, b, c, d))
HEADGATE_PQ(char*, PQescapeIdentifier, (PGconn * a, const char* b, size_t c), (a, b, c))
HEADGATE_PQ(size_t, PQescapeStringConn, (PGconn * a, char* b, const char* c, size_t d, int* e), (a, b, c, d, e))
HEADGATE_PQ(PGresult*, PQexec, (PGconn * a, const char* b), (a, b))
HEADGATE_PQ(PGresult*, PQexecParams,
            (PGconn * a, const char* b, int c, const Oid* d, const char* const* e, const int* f, const int* g, int h),
            (a, b, c, d, e, f, g, h))
HEADGATE_PQ(PGresult*, PQexecPrepared,
            (PGconn * a, const char* b, int c, const char* const* d, const int* e, const int* f, int g),
            (a, b, c, d, e, f, g))
HEADGATE_PQ(void, PQfinish, (PGconn * a), (a))
HEADGATE_PQ(char*, PQfname, (const PGresult* a, int b), (a, b))
HEADGATE_PQ(int, PQfnumber, (const PGresult* a, const char* b), (a, b))
HEADGATE_PQ(void, PQfreeCancel, (PGcancel * a), (a))
HEADGATE_PQ(void, PQfreemem, (void* a), (a))
HEADGATE_PQ(Oid, PQftable, (const PGresult* a, int b), (a, b))
HEADGATE_PQ(int, PQftablecol, (const PGresult* a, int b), (a, b))
HEADGATE_PQ(Oid, PQftype, (const PGresult* a, int b), (a, b))
HEADGATE_PQ(PGcancel*, PQgetCancel, (PGconn * a), (a))
HEADGATE_PQ(int, PQgetCopyData, (PGconn * a, char** b, int c), (a, b, c))
HEADGATE_PQ(PGresult*, PQgetResult, (PGconn * a), (a))
HEADGATE_PQ(int, PQgetisnull, (const PGresult* a, int b, int c), (a, b, c))
HEADGATE_PQ(int, PQgetlength, (const PGresult* a, int b, int c), (a, b, c))
HEADGATE_PQ(char*, PQgetvalue, (const PGresult* a, int b, int c), (a, b, c))
HEADGATE_PQ(char*, PQhost, (const PGconn* a), (a))
HEADGATE_PQ(int, PQisBusy, (PGconn * a), (a))
HEADGATE_PQ(int, PQisthreadsafe, (), ())
HEADGATE_PQ(int, PQnfields, (const PGresult* a), (a))
HEADGATE_PQ(PGnotify*, PQnotifies, (PGconn * a), (a))
HEADGATE_PQ(int, PQntuples, (const PGresult* a), (a))
HEADGATE_PQ(Oid, PQoidValue, (const PGresult* a), (a))
HEADGATE_PQ(char*, PQport, (const PGconn* a), (a))
HEADGATE_PQ(PGresult*, PQprepare, (PGconn * a, const char* b, const char* c, int d, const Oid* e), (a, b, c, d, e))
HEADGATE_PQ(int, PQprotocolVersion, (const PGconn* a), (a))
HEADGATE_PQ(int, PQputCopyData, (PGconn * a, const char* b, int c), (a, b, c))
HEADGATE_PQ(int, PQputCopyEnd, (PGconn * a, const char* b), (a, b))
HEADGATE_PQ(void, PQreset, (PGconn * a), (a))
HEADGATE_PQ(char*, PQresultErrorField, (const PGresult* a, int b), (a, b))
HEADGATE_PQ(char*, PQresultErrorMessage, (const PGresult* a), (a))
HEADGATE_PQ(ExecStatusType, PQresultStatus, (const PGresult* a), (a))
HEADGATE_PQ(int, PQsendQuery, (PGconn * a, const char* b), (a, b))
HEADGATE_PQ(int, PQserverVersion, (const PGconn* a), (a))
HEADGATE_PQ(int, PQsetClientEncoding, (PGconn * a, const char* b), (a, b))
HEADGATE_PQ(PGVerbosity, PQsetErrorVerbosity, (PGconn * a, PGVerbosity b), (a, b))
HEADGATE_PQ(PQnoticeProcessor, PQsetNoticeProcessor, (PGconn * a, PQnoticeProcessor b, void* c), (a, b, c))
HEADGATE_PQ(int, PQsocket, (const PGconn* a), (a))
HEADGATE_PQ(ConnStatusType, PQstatus, (const PGconn* a), (a))
HEADGATE_PQ(void, PQtrace, (PGconn * a, FILE* b), (a, b))
HEADGATE_PQ(unsigned char*, PQunescapeBytea, (const unsigned char* a, size_t* b), (a, b))
HEADGATE_PQ(void, PQuntrace, (PGconn * a), (a))
HEADGATE_PQ(char*, PQuser, (const PGconn* a), (a))
HEADGATE_PQ(int, lo_close, (PGconn * a, int b), (a, b))
HEADGATE_PQ(Oid, lo_creat, (PGconn * a, int b), (a, b))
HEADGATE_PQ(int, lo_export, (PGconn * a, Oid b, const char* c), (a, b, c))
HEADGATE_PQ(Oid, lo_import, (PGconn * a, const char* b), (a, b))
HEADGATE_PQ(int, lo_lseek, (PGconn * a, int b, int c, int d), (a, b, c, d))
HEADGATE_PQ(int, lo_open, (PGconn * a, Oid b, int c), (a, b, c))
HEADGATE_PQ(int, lo_read, (PGconn * a, int b, char* c, size_t d), (a, b, c, d))
HEADGATE_PQ(int, lo_tell, (PGconn * a, int b), (a, b))
HEADGATE_PQ(int, lo_unlink, (PGconn * a, Oid b), (a, b))
HEADGATE_PQ(int, lo_write, (PGconn * a, int b, const char* c, size_t d), (a, b, c, d))
HEADGATE_PQ(const char*, pg_encoding_to_char, (int a), (a))

}  // extern "C"
