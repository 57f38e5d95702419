#pragma once

#include <memory>

#include <spdlog/spdlog.h>

namespace troupe {

/// The engine's logger if it has one, else the process's. Looked up each time: only for rare messages.
inline std::shared_ptr<spdlog::logger> planner_log() {
  auto own = spdlog::get("troupe");
  return own ? own : spdlog::default_logger();
}

}  // namespace troupe
