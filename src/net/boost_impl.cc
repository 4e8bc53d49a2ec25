// The one place where Boost's Asio and Beast are compiled; every other file sees declarations.
#include <boost/asio/impl/src.hpp>
#include <boost/beast/src.hpp>
