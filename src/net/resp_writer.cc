#include <array>
#include <charconv>
#include <cstring>

#include "base/pen.h"
#include "net/resp.h"

namespace headgate::net {
namespace {

// A type's mark, a number and the end of the line, in one append.
template <class Number>
void append_line(std::string& out, char mark, Number number) {
  std::array<char, 24> text;
  text[0] = mark;
  char* end = text.data() + 1;
  if (number >= 0 && number < 10) {
    *end++ = static_cast<char>('0' + number);
  } else {
    end = std::to_chars(end, text.data() + text.size() - 2, number).ptr;
  }
  *end++ = '\r';
  *end++ = '\n';
  out.append(text.data(), static_cast<std::size_t>(end - text.data()));
}

void append_text(std::string& out, char mark, std::string_view text) {
  out += mark;
  const std::size_t at = out.size();
  out += text;
  for (std::size_t i = at; i < out.size(); ++i) {
    if (out[i] == '\r' || out[i] == '\n') out[i] = ' ';
  }
  out += "\r\n";
}

}  // namespace

void RespWriter::simple(std::string_view text) { append_text(out_, '+', text); }
void RespWriter::error(std::string_view text) { append_text(out_, '-', text); }
void RespWriter::integer(std::int64_t value) { append_line(out_, ':', value); }

void RespWriter::bulk(std::string_view text) {
  append_line(out_, '$', text.size());
  out_ += text;
  out_ += "\r\n";
}

void RespWriter::null() { out_ += version_ >= 3 ? "_\r\n" : "$-1\r\n"; }
void RespWriter::array(std::size_t count) { append_line(out_, '*', count); }

void RespWriter::integers(std::span<const std::int64_t> values) {
  base::Pen pen(out_);
  pen.put('*');
  pen.number(static_cast<std::int64_t>(values.size()));
  for (const std::int64_t value : values) {
    pen.put("\r\n:");
    if (value >= 0 && value < 10) {
      pen.put(static_cast<char>('0' + value));
    } else {
      pen.number(value);
    }
  }
  pen.put("\r\n");
}

void RespWriter::map(std::size_t pairs) {
  if (version_ >= 3) {
    append_line(out_, '%', pairs);
  } else {
    append_line(out_, '*', pairs * 2);
  }
}

void RespWriter::boolean(bool value) {
  if (version_ >= 3) {
    out_ += value ? "#t\r\n" : "#f\r\n";
  } else {
    out_ += value ? ":1\r\n" : ":0\r\n";
  }
}

}  // namespace headgate::net
