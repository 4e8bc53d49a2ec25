// The cells of a server that keeps them in memory, written to disk every so often and when it stops.
#pragma once

#include <memory>
#include <string>

#include "base/repeating.h"
#include "engine/engine.h"

namespace headgate::service {

class CellSnapshots {
 public:
  // `engine` outlives it.
  CellSnapshots(engine::Engine& engine, std::string path) : engine_(engine), path_(std::move(path)) {}

  // Reads the last snapshot. A file that is refused is renamed to *.refused, and the server starts without cells: that
  // forgets what was used, but not starting would leave the agents without an answer.
  void restore();
  // Saves every so often (0: never) and once more when it is destroyed.
  void start(Nanos every);

 private:
  void save();

  engine::Engine& engine_;
  const std::string path_;
  std::unique_ptr<base::Repeating> saving_;
};

}  // namespace headgate::service
