#include "engine/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <system_error>

#include "base/suggest.h"
#include "base/utf8.h"

namespace headgate::engine {
namespace {

using Kind = TraceStep::Kind;

constexpr std::size_t kChunk = 256 << 10;

Error refused_line(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }

struct EventShape {
  const char* name;
  Kind kind;
  FieldSet needs;
  FieldSet takes;  // besides
};

constexpr FieldSet kTierFields = set_of(Field::kLight) | set_of(Field::kNormal) | set_of(Field::kHeavy);
constexpr std::array<EventShape, 9> kEvents{{
    {"load", Kind::kLoad, set_of(Field::kLoad), 0},
    {"emergency_on", Kind::kEmergencyOn, 0, set_of(Field::kReason) | set_of(Field::kBy)},
    {"emergency_off", Kind::kEmergencyOff, 0, set_of(Field::kReason) | set_of(Field::kBy)},
    {"override", Kind::kOverride, set_of(Field::kAgent), kTierFields | set_of(Field::kRemove)},
    {"exempt", Kind::kExempt, set_of(Field::kAgent), set_of(Field::kRemove)},
    {"settle", Kind::kSettle, set_of(Field::kLease), set_of(Field::kCost)},
    {"release", Kind::kRelease, set_of(Field::kLease), 0},
    {"renew", Kind::kRenew, set_of(Field::kLease), 0},
    {"policies", Kind::kPolicies, set_of(Field::kFile), 0},
}};
constexpr FieldSet kTimes = set_of(Field::kT) | set_of(Field::kTime);

Result<const EventShape*> event_named(std::string_view name) {
  std::vector<std::string> names;
  for (const EventShape& shape : kEvents) {
    if (name == shape.name) return &shape;
    names.emplace_back(shape.name);
  }
  return refused_line(
      fmt::format("there is no event \"{}\"{}", base::shortened(name, 60), base::did_you_mean(name, names)));
}

std::string_view first_of(FieldSet fields) {
  for (int i = 0; i < kFieldCount; ++i) {
    if ((fields >> i & 1U) != 0) return name_of(static_cast<Field>(i));
  }
  return {};
}

Result<void> read_override(const LineFields& fields, TraceStep& step) {
  step.numbers = {};
  step.numbers.agent = fields.check.agent;
  if ((fields.given & kTierFields) == 0) {
    if (step.remove) return {};
    return refused_line("an override must have light, normal or heavy, or \"remove\": true");
  }
  if (step.remove) return refused_line("an override must have numbers or \"remove\": true, not both");
  for (std::size_t i = 0; i < fields.tiers.size(); ++i) {
    const auto field = static_cast<Field>(static_cast<std::size_t>(Field::kLight) + i);
    if (!fields.has(field)) continue;
    const LineFields::Tier& tier = fields.tiers[i];
    if (tier.capacity == 0) return refused_line(fmt::format("{}.capacity is required", name_of(field)));
    if (tier.refill_per_minute == 0)
      return refused_line(fmt::format("{}.refill_per_minute is required", name_of(field)));
    step.numbers.tiers[i] = policy::TierLimit{tier.capacity, tier.refill_per_minute};
  }
  return {};
}

}  // namespace

Result<void> to_step(const LineFields& fields, TraceStep& step) {
  if (!fields.has(Field::kEvent)) {
    if (const FieldSet odd = fields.given & ~(kCheckFields | kTimes); odd != 0) {
      return unknown_field(first_of(odd), kCheckFields, "a check");
    }
    step.kind = Kind::kCheck;
    step.check = fields.check;
    return {};
  }
  const Result<const EventShape*> found = event_named(fields.event);
  if (!found) return found.error();
  const EventShape& shape = **found;
  if (const FieldSet absent = shape.needs & ~fields.given; absent != 0) {
    return refused_line(fmt::format("event \"{}\" must have {}", shape.name, first_of(absent)));
  }
  const FieldSet allowed = shape.needs | shape.takes | kTimes | set_of(Field::kEvent);
  if (const FieldSet odd = fields.given & ~allowed; odd != 0) {
    return refused_line(fmt::format("event \"{}\" has no {}", shape.name, first_of(odd)));
  }
  step.kind = shape.kind;
  step.load = fields.load;
  step.lease = fields.lease;
  step.agent = fields.check.agent;
  step.reason = fields.reason;
  step.by = fields.by;
  step.file = fields.file;
  step.remove = fields.remove;
  step.costs = fields.costs;
  if (shape.needs == set_of(Field::kAgent) && step.agent.empty()) {
    return refused_line(fmt::format("event \"{}\" must have agent", shape.name));
  }
  return step.kind == Kind::kOverride ? read_override(fields, step) : Result<void>();
}

TraceReader::TraceReader(std::istream& in, std::string name) : in_(&in), name_(std::move(name)) {}
TraceReader::TraceReader(TraceReader&&) noexcept = default;
TraceReader& TraceReader::operator=(TraceReader&&) noexcept = default;
TraceReader::~TraceReader() = default;

Result<TraceReader> TraceReader::open(const std::string& path) {
  if (path == "-") return TraceReader(std::cin, "standard input");
  auto file = std::make_unique<std::ifstream>(path, std::ios::binary);
  // A directory opens, but cannot be read.
  if (!*file || (file->peek(), file->bad())) {
    return Error{ErrorCode::kIo, fmt::format("{}: cannot be read: {}", path, std::generic_category().message(errno))};
  }
  file->clear();
  TraceReader reader(*file, path);
  reader.owned_ = std::move(file);
  return reader;
}

Error TraceReader::error(std::string_view message) const {
  return {ErrorCode::kInvalidArgument, fmt::format("{}:{}: {}", name_, step_.line, message)};
}

// Without its line break. What it gives is valid, and may be written to, until the next call.
Result<bool> TraceReader::next_line(std::string_view& line) {
  std::size_t searched = 0;
  for (;;) {
    const char* from = buffer_.data() + begin_;
    const void* found = std::memchr(from + searched, '\n', end_ - begin_ - searched);
    const std::size_t size =
        found == nullptr ? end_ - begin_ : static_cast<std::size_t>(static_cast<const char*>(found) - from);
    if (size > kMaxLineBytes + 1) {
      ++step_.line;
      return error(fmt::format("a line must be at most {} bytes long", kMaxLineBytes));
    }
    if (found != nullptr || (ended_ && size > 0)) {
      ++step_.line;
      begin_ += size + (found == nullptr ? 0 : 1);
      line = {from, size};
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line.size() > kMaxLineBytes) return error(fmt::format("a line must be at most {} bytes long", kMaxLineBytes));
      return true;
    }
    if (ended_) return false;
    searched = size;
    buffer_.erase(0, begin_);
    end_ -= begin_;
    begin_ = 0;
    if (buffer_.size() < end_ + kChunk) buffer_.resize(end_ + kChunk);
    in_->read(buffer_.data() + end_, static_cast<std::streamsize>(kChunk));
    end_ += static_cast<std::size_t>(in_->gcount());
    if (in_->bad()) return Error{ErrorCode::kIo, fmt::format("{}: cannot be read to its end", name_)};
    ended_ = in_->eof() || in_->fail();
  }
}

// Cells between commas; quotes around a cell, and two of them for one inside.
Result<void> TraceReader::split(std::string_view line) {
  cells_.clear();
  unquoted_.clear();
  unquoted_.reserve(line.size());  // so that it never moves
  std::size_t at = 0;
  for (;;) {
    if (at < line.size() && line[at] == '"') {
      const std::size_t from = unquoted_.size();
      for (++at;; ++at) {
        if (at >= line.size())
          return error(fmt::format("cell {} must end with a quote on its line", cells_.size() + 1));
        if (line[at] == '"' && (++at >= line.size() || line[at] != '"')) break;
        unquoted_ += line[at];
      }
      cells_.emplace_back(unquoted_.data() + from, unquoted_.size() - from);
      if (at < line.size() && line[at] != ',') {
        return error(fmt::format("cell {} must have nothing after its quote", cells_.size()));
      }
    } else {
      const std::size_t end = std::min(line.find(',', at), line.size());
      cells_.push_back(line.substr(at, end - at));
      at = end;
    }
    if (at >= line.size()) return {};
    ++at;
  }
}

Result<void> TraceReader::read_header(std::string_view line) {
  if (Result<void> cut = split(line); !cut) return cut;
  for (const std::string_view cell : cells_) {
    Column column;
    column.name = cell;
    std::string_view name = cell;
    const std::size_t dot = cell.find('.');
    if (dot != std::string_view::npos) {
      column.part = cell.substr(dot + 1);
      name = cell.substr(0, dot);
      if (name == "attr") name = "context";
    }
    const std::optional<Field> field = field_named(name, kTraceFields);
    const bool wants_part =
        field && *field != Field::kCost && *field != Field::kParent && LineFields::has_parts(*field);
    if (!field || (dot != std::string_view::npos && (column.part.empty() || !LineFields::has_parts(*field)))) {
      Error unknown = unknown_field(cell, kTraceFields, "a trace");
      return error(unknown.message + "; attributes are columns that begin with \"context.\" or \"attr.\"");
    }
    if (wants_part && dot == std::string_view::npos) {
      return error(fmt::format("column \"{}\" must name a part of it, such as {}", cell,
                               *field == Field::kContext ? "context.type" : fmt::format("{}.capacity", cell)));
    }
    column.field = *field;
    for (const Column& other : columns_) {
      if (other.field == column.field && other.part == column.part) {
        return error(fmt::format("column \"{}\" must be there once, is there twice", cell));
      }
    }
    columns_.push_back(std::move(column));
  }
  return {};
}

Result<void> TraceReader::read_row(std::string_view line) {
  if (const std::size_t odd = base::find_not_text(line); odd != std::string_view::npos) {
    return error(fmt::format("must be UTF-8 without control characters, byte {} is not", odd + 1));
  }
  if (Result<void> cut = split(line); !cut) return cut;
  if (cells_.size() != columns_.size()) {
    return error(fmt::format("must have {} cells as the header has, got {}", columns_.size(), cells_.size()));
  }
  fields_.clear();
  for (std::size_t i = 0; i < cells_.size(); ++i) {
    if (cells_[i].empty()) continue;
    Scalar cell;
    cell.kind = Scalar::Kind::kUntyped;
    cell.text = cells_[i];
    if (Result<void> set = fields_.set(columns_[i].field, columns_[i].part, cell); !set) {
      return error(set.error().message);
    }
  }
  if (fields_.has(Field::kParent) && fields_.check.parent_session.empty()) return error(kParentWithoutSession);
  fields_.finish();
  return {};
}

Result<void> TraceReader::take_time() {
  const bool absolute = fields_.has(Field::kTime);
  if (absolute == fields_.has(Field::kT)) {
    return error(absolute ? "must have t or time, not both"
                          : "must have t (milliseconds from the start) or time (epoch milliseconds or RFC 3339)");
  }
  const Nanos at = absolute ? fields_.time : fields_.t;
  if (lines_ > 0 && absolute != step_.absolute) {
    return error(fmt::format("must have {} as the lines before it", step_.absolute ? "time" : "t"));
  }
  if (lines_ > 0 && at < step_.at) {
    const auto millis = [](Nanos span) { return static_cast<double>(span.count()) / 1e6; };
    return error(fmt::format("time must not go backwards: {} comes after {}", millis(at), millis(step_.at)));
  }
  step_.absolute = absolute;
  step_.at = at;
  return {};
}

Result<bool> TraceReader::next() {
  std::string_view line;
  for (;;) {
    Result<bool> read = next_line(line);
    if (!read || !*read) {
      ended_ = true;
      begin_ = end_;
      return read;
    }
    if (step_.line == 1 && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
    const std::size_t first = line.find_first_not_of(" \t");
    if (first == std::string_view::npos) continue;
    if (form_ == Form::kUnknown) {
      form_ = line[first] == '{' ? Form::kJson : Form::kTable;
      if (line[first] == '[') return error("must be JSON lines, one object on each, or CSV; got a JSON list");
      if (form_ == Form::kTable) {
        if (Result<void> header = read_header(line); !header) return header.error();
        continue;
      }
    }
    break;
  }
  if (form_ == Form::kJson) {
    if (const Result<void> read = json_.read(line, kTraceFields, "a line", fields_); !read) {
      return error(read.error().message);
    }
  } else if (Result<void> read = read_row(line); !read) {
    return read.error();
  }
  if (Result<void> taken = take_time(); !taken) return taken.error();
  if (const Result<void> made = to_step(fields_, step_); !made) return error(made.error().message);
  step_.index = lines_++;
  return true;
}

}  // namespace headgate::engine
