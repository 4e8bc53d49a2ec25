#include "net/resp.h"

namespace headgate::net {

void RespWriter::line(char mark, std::string_view text) {
  pen_.put(mark);
  std::string& out = pen_.flush();
  const std::size_t at = out.size();
  out += text;
  for (std::size_t i = at; i < out.size(); ++i) {
    if (out[i] == '\r' || out[i] == '\n') out[i] = ' ';
  }
  out += "\r\n";
}

}  // namespace headgate::net
