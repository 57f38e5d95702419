// SPDX-License-Identifier: Apache-2.0
// A file that a user named, read whole, with an end to what it costs.
#pragma once

#include <cstddef>
#include <string>

namespace troupe {

/// The most that configurations and tuning files may have; score files, whose text takes ten times as much once it is read; and traces.
inline constexpr std::size_t most_config_bytes = std::size_t{16} << 20;
inline constexpr std::size_t most_score_file_bytes = std::size_t{256} << 20;
inline constexpr std::size_t most_trace_bytes = std::size_t{1} << 30;

struct file_text {
  std::string text;
  std::string problem;  ///< the end of a sentence, "it is a folder"; empty: it was read
};

/// The most that is read of a device such as /dev/zero, whatever `most` is: a device may have no end, and nobody keeps files there.
inline constexpr std::size_t most_device_bytes = most_config_bytes;

/// Regular files, and pipes such as a shell's <(…). Reads no byte beyond `most`, and gives up a pipe or terminal in which nothing has come
/// for ten seconds: /dev/zero and a FIFO that nobody writes to are answered, too. A file that is too long is not read at all. Takes no more
/// memory than what has been read, and a block.
file_text read_file(const std::string& path, std::size_t most);

}  // namespace troupe
