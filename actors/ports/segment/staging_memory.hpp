// SPDX-License-Identifier: Apache-2.0
#pragma once
// Memory of this process that the others of its host map, too; given back by its holder.

#include <bit>
#include <cstddef>
#include <memory>

#include "actors/ports/segment/board_memory.hpp"
#include "memory/populate.hpp"

namespace troupe {

/// One thread at a time.
class staging_memory {
public:
  /// @param from which outlives it; may be null until it is first asked for any
  explicit staging_memory(process_memory* from) : at_(nullptr, {from}) {}

  /// Of at least so many bytes, all of which will be written; what was in it is lost if it has to grow. Null: there is none.
  std::byte* grow(std::size_t bytes) {
    std::byte* const at = reserve(bytes);
    if (at != nullptr && bytes > populated_) {
      populate(at + populated_, bytes - populated_);
      populated_ = bytes;
    }
    return at;
  }
  /// The same, of which some may never be written: the system gives each page when it is.
  std::byte* reserve(std::size_t bytes) {
    if (bytes <= bytes_) return at_.get();
    at_.reset();
    populated_ = 0;
    bytes_ = std::bit_ceil(bytes);
    at_.reset(at_.get_deleter().to->lend(bytes_));
    if (at_ == nullptr) bytes_ = 0;
    return at_.get();
  }
  std::byte* get() const { return at_.get(); }
  std::size_t bytes() const { return bytes_; }

private:
  struct give_back {
    process_memory* to;
    void operator()(std::byte* lent) const { to->take_back(lent); }
  };
  std::unique_ptr<std::byte, give_back> at_;
  std::size_t bytes_ = 0, populated_ = 0;
};

}  // namespace troupe
