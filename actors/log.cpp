// SPDX-License-Identifier: Apache-2.0
#include "actors/log.hpp"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace troupe {

std::shared_ptr<spdlog::logger> make_log(const std::string& level) {
  // One for all, because it holds the lock that keeps lines whole. Never destroyed: an engine may be closed by another static object.
  static auto& sink =
      *new std::shared_ptr<spdlog::sinks::sink>(std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  auto made = std::make_shared<spdlog::logger>("troupe", sink);
  made->set_level(spdlog::level::from_str(level));
  return made;
}

}  // namespace troupe
