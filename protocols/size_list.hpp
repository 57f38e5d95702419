// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sizes that a call carries: of a block for each rank. Few lie in the list itself, so that calls of few ranks, whose time is counted in
// nanoseconds, allocate nothing.

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace troupe {

/// Lists are short, and new with every call: a loop is done before a function of the library is called.
inline bool same_sizes(std::span<const std::size_t> a, std::span<const std::size_t> b) {
  std::size_t differ = a.size() ^ b.size();
  for (std::size_t i = 0; differ == 0 && i < b.size(); ++i) differ = a[i] ^ b[i];
  return differ == 0;
}
/// Allocates for more than ever before.
inline void copy_sizes(std::span<const std::size_t> from, std::vector<std::size_t>& to) {
  if (to.size() != from.size()) to.resize(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) to[i] = from[i];
}

/// Elements. As any value: it is copied with what it holds. A range of them, which a std::span takes.
class size_list {
public:
  static constexpr std::size_t few = 8;

  // Not `= default`: what lies behind the end of a short list is not set, and is not copied.
  size_list() noexcept {}  // NOLINT(modernize-use-equals-default)
  /// Throws std::bad_alloc for more than `few`.
  size_list(std::span<const std::size_t> from) : size_(from.size()) {
    if (size_ > few) many_ = std::make_unique_for_overwrite<std::size_t[]>(size_);
    for (std::size_t i = 0; i < size_; ++i) data()[i] = from[i];
  }
  size_list(const std::vector<std::size_t>& from) : size_list(std::span{from}) {}
  size_list(std::initializer_list<std::size_t> from) : size_list(std::span{from.begin(), from.size()}) {}
  size_list(const size_list& from) : size_list(std::span{from.begin(), from.size()}) {}
  size_list(size_list&& from) noexcept : size_(std::exchange(from.size_, 0)), many_(std::move(from.many_)) {
    if (!many_) std::copy_n(from.few_.begin(), size_, few_.begin());
  }
  size_list& operator=(size_list from) noexcept {
    size_ = from.size_;
    many_ = std::move(from.many_);
    if (!many_) std::copy_n(from.few_.begin(), size_, few_.begin());
    return *this;
  }
  ~size_list() = default;

  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  const std::size_t* begin() const noexcept { return many_ ? many_.get() : few_.data(); }
  const std::size_t* end() const noexcept { return begin() + size_; }
  /// @pre i < size()
  std::size_t operator[](std::size_t i) const noexcept { return begin()[i]; }
  std::vector<std::size_t> to_vector() const { return {begin(), end()}; }

private:
  std::size_t* data() noexcept { return many_ ? many_.get() : few_.data(); }

  std::size_t size_ = 0;
  std::unique_ptr<std::size_t[]> many_;  ///< if they are more than `few`
  std::array<std::size_t, few> few_;
};

}  // namespace troupe
