// SPDX-License-Identifier: Apache-2.0
#pragma once
// What an engine has to say beside its errors.

#include <memory>
#include <string>

namespace spdlog {
class logger;
}

namespace troupe {

/// On standard error, at a level of its own: the engines of a process do not change each other's. Nothing is registered with spdlog, so the
/// application's loggers stay as they are.
/// @param level trace, debug, info, warn, error or off
std::shared_ptr<spdlog::logger> make_log(const std::string& level);

}  // namespace troupe
