// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a process and its host's NIC process say to each other (nic_host.hpp). Both are of the same build, which the first word tells. For nic_host*.cpp.

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

namespace troupe::actors::nic_host {

constexpr std::uint64_t word_magic = 0x31306463696e2d74;  // "t-nicd01"
constexpr std::uint32_t most_ranks = 255;                 ///< as nic_arrivals

enum class word_kind : std::uint32_t { hello = 1, memory, enter, leave };

struct word {
  std::uint64_t magic = word_magic;
  word_kind kind{};
  std::uint32_t ranks = 0;
  std::uint64_t build = 0, job = 0;
  std::uint32_t number = 0, processes = 0;
  std::uint64_t communicator = 0, bytes = 0;
  std::uint32_t process_of[most_ranks + 1] = {};
};

struct reply {
  std::uint64_t magic = word_magic;
  std::uint32_t refused = 0;  ///< else it is done
  std::int32_t code = 0;      ///< errc
  std::int64_t pid = 0;
  char text[256] = {};  ///< why; ends with a zero

  void refuse(int why, const std::string& sentence) {
    refused = 1;
    code = why;
    std::strncpy(text, sentence.c_str(), sizeof text - 1);
  }
};
static_assert(std::is_trivially_copyable_v<word> && std::is_trivially_copyable_v<reply>);

}  // namespace troupe::actors::nic_host
