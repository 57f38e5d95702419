// SPDX-License-Identifier: Apache-2.0
#pragma once
// What operators see of memory: up to four dimensions with strides, and the tile, a tensor with its number.

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "memory/error.hpp"
#include "memory/export.hpp"

namespace troupe {

/// Extents of 0 … 4 dimensions, the last one the innermost: {rows, columns}. Throws errc::invalid_argument for more,
/// or an extent of 0; errc::size_overflow.
class TROUPE_API tensor_shape {
public:
  static constexpr std::size_t most = 4;

  constexpr tensor_shape() = default;
  tensor_shape(std::initializer_list<std::size_t> extents) : tensor_shape(std::span{extents.begin(), extents.size()}) {}
  explicit tensor_shape(std::span<const std::size_t> extents);

  std::size_t rank() const noexcept { return rank_; }
  /// Of dimension d < rank().
  std::size_t operator[](std::size_t d) const noexcept { return extents_[d]; }
  std::size_t& operator[](std::size_t d) noexcept { return extents_[d]; }
  /// Of all dimensions together; of no dimension 1.
  std::size_t elements() const noexcept {
    std::size_t product = 1;
    for (std::size_t d = 0; d < rank_; ++d) product *= extents_[d];
    return product;
  }
  /// Elements from one to the next, where all lie one behind the other.
  std::array<std::size_t, most> strides() const noexcept {
    std::array<std::size_t, most> all{};
    std::size_t step = 1;
    for (std::size_t d = rank_; d-- > 0; step *= extents_[d]) all[d] = step;
    return all;
  }
  bool operator==(const tensor_shape&) const = default;

private:
  std::size_t rank_ = 0;
  std::array<std::size_t, most> extents_{};
};

/// "4x64", and "one element" for no dimension.
TROUPE_API std::string to_string(const tensor_shape& shape);

namespace detail {
[[noreturn]] TROUPE_API void refuse_gaps(const char* taker, const tensor_shape& shape,
                                         const std::array<std::size_t, tensor_shape::most>& strides);
/// Throws errc::invalid_argument if they differ. @param what begins the text: "it adds tiles of shape"
TROUPE_API void check_same(const char* what, const tensor_shape& a, const tensor_shape& b);
}  // namespace detail

/// A view: as cheap to copy as a span, and like it, it owns nothing. Indices are not checked.
template <class T>
class tensor {
public:
  tensor() = default;
  /// All elements one behind the other.
  tensor(T* data, const tensor_shape& shape) : tensor(data, shape, shape.strides()) {}
  /// @param strides elements from one index to the next, by dimension
  tensor(T* data, const tensor_shape& shape, const std::array<std::size_t, tensor_shape::most>& strides)
      : data_(data), shape_(shape), strides_(strides) {}
  /// What may be written may be read.
  template <class U>
    requires(std::is_same_v<T, const U>)
  tensor(const tensor<U>& other) : tensor(other.data(), other.shape(), other.strides()) {}

  T* data() const noexcept { return data_; }
  const tensor_shape& shape() const noexcept { return shape_; }
  const std::array<std::size_t, tensor_shape::most>& strides() const noexcept { return strides_; }
  std::size_t rank() const noexcept { return shape_.rank(); }
  std::size_t extent(std::size_t d) const noexcept { return shape_[d]; }
  std::size_t elements() const noexcept { return shape_.elements(); }

  /// An index for each dimension.
  template <class... I>
  T& operator()(I... index) const noexcept {
    std::size_t at = 0, d = 0;
    ((at += static_cast<std::size_t>(index) * strides_[d++]), ...);
    return data_[at];
  }
  /// The elements one behind the other. @pre contiguous()
  std::span<T> flat() const noexcept { return {data_, elements()}; }
  /// As flat(). Throws errc::invalid_argument if the elements do not lie so. @param taker what wants them so, for the text
  std::span<T> dense(const char* taker) const {
    if (!contiguous()) detail::refuse_gaps(taker, shape_, strides_);
    return flat();
  }
  bool contiguous() const noexcept {
    const auto dense = shape_.strides();
    for (std::size_t d = 0; d < rank(); ++d)
      if (shape_[d] > 1 && strides_[d] != dense[d]) return false;
    return true;
  }
  /// Row `index` of the first dimension: one dimension less. @pre rank() > 0
  tensor operator[](std::size_t index) const {
    tensor row{data_ + index * strides_[0], {}, {}};
    std::array<std::size_t, tensor_shape::most> extents{};
    for (std::size_t d = 1; d < rank(); ++d) {
      extents[d - 1] = shape_[d];
      row.strides_[d - 1] = strides_[d];
    }
    row.shape_ = tensor_shape{std::span<const std::size_t>{extents.data(), rank() - 1}};
    return row;
  }
  /// `count` indices of dimension d from `first` on.
  tensor slice(std::size_t d, std::size_t first, std::size_t count) const {
    tensor part = *this;
    part.data_ += first * strides_[d];
    part.shape_[d] = count;
    return part;
  }
  /// The same elements with dimensions a and b exchanged.
  tensor transposed(std::size_t a = 0, std::size_t b = 1) const {
    tensor other = *this;
    std::swap(other.shape_[a], other.shape_[b]);
    std::swap(other.strides_[a], other.strides_[b]);
    return other;
  }

private:
  T* data_ = nullptr;
  tensor_shape shape_;
  std::array<std::size_t, tensor_shape::most> strides_{};
};

/// A tile of a stream, as its operator sees it: valid until the operator returns.
template <class T>
struct tile : tensor<T> {
  tile(const tensor<T>& view, int number) : tensor<T>(view), index(number) {}
  /// What may be written may be read.
  template <class U>
    requires(std::is_same_v<T, const U>)
  tile(const tile<U>& other) : tensor<T>(other), index(other.index) {}

  int index;  ///< in its stream
};

}  // namespace troupe
