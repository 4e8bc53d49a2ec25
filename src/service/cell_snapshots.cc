#include "service/cell_snapshots.h"

#include <filesystem>

#include "observe/log.h"

namespace headgate::service {

using observe::LogLevel;

void CellSnapshots::restore() {
  if (!std::filesystem::exists(path_)) return;
  const Result<std::size_t> restored = engine_.restore(path_);
  if (restored) {
    observe::log(LogLevel::kInfo, "cells restored", {{"cells", static_cast<std::int64_t>(*restored)}});
    return;
  }
  const std::string kept = path_ + ".refused";
  std::error_code ignored;
  std::filesystem::rename(path_, kept, ignored);
  observe::log(LogLevel::kError, "snapshot refused; starting without cells",
               {{"problem", restored.error().message}, {"kept_as", kept}});
}

void CellSnapshots::start(Nanos every) {
  saving_ = std::make_unique<base::Repeating>(every, [this] { save(); });
}

void CellSnapshots::save() {
  if (const Result<void> saved = engine_.save(path_); !saved) {
    observe::log(LogLevel::kError, "snapshot not written", {{"problem", saved.error().message}});
  }
}

}  // namespace headgate::service
