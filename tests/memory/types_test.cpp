// SPDX-License-Identifier: Apache-2.0
#include "memory/error.hpp"
#include "memory/types/types.hpp"
#include "tests/memory/values.hpp"

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <type_traits>

using namespace troupe;
using namespace memory_tests;

TEST_CASE("every type has a size, a unique name and parses back") {
  std::set<std::string> seen;
  for (datatype type : all_datatypes) {
    CHECK(seen.insert(std::string{name(type)}).second);
    CHECK(parse_datatype(name(type)) == type);
    CHECK(parse_datatype(nccl_name(type)) == type);
  }
  for_each_type([]<class T>() { CHECK(size_of(datatype_of<T>) == sizeof(T)); });
  CHECK(seen.size() == 14);
  CHECK(datatype_of<long long> == datatype::i64);
  CHECK(datatype_of<std::complex<float>> == datatype::c64);
  CHECK(datatype_of<std::complex<double>> == datatype::c128);
  CHECK_FALSE(element<std::complex<int>>);
  CHECK(size_of(datatype::c128) == sizeof(std::complex<double>));
  CHECK(datatype_of<unsigned long> == datatype::u64);
  static_assert(!element<bool> && !element<char16_t> && !element<const float> && element<float>);
}

TEST_CASE("names of nccl-tests and other aliases parse; nonsense does not") {
  const std::pair<const char*, datatype> known[] = {
      {"int8", datatype::i8},         {"uint8", datatype::u8},        {"int32", datatype::i32},
      {"uint32", datatype::u32},      {"int64", datatype::i64},       {"uint64", datatype::u64},
      {"half", datatype::f16},        {"float16", datatype::f16},     {"bfloat16", datatype::bf16},
      {"float", datatype::f32},       {"double", datatype::f64},      {"fp8_e4m3", datatype::f8e4m3},
      {"fp8_e5m2", datatype::f8e5m2}, {"fp8-e4m3", datatype::f8e4m3}, {"complex64", datatype::c64},
      {"complex128", datatype::c128}, {"cdouble", datatype::c128}};
  for (const auto& entry : known) CHECK_MESSAGE(parse_datatype(entry.first) == entry.second, entry.first);
  for (const char* text : {"", "f33", "F32", "float ", "?"}) CHECK_MESSAGE(!parse_datatype(text), text);
  for (op_kind kind : all_op_kinds)
    if (kind != op_kind::user) CHECK(parse_op(name(kind)) == kind);
  CHECK(parse_op("mulsum") == op_kind::pre_mul_sum);
  CHECK(!parse_op("user"));
  CHECK(!parse_op("SUM"));
}

TEST_CASE("values outside the enumerations are named, not undefined") {
  const auto strange = static_cast<datatype>(200);
  CHECK(size_of(strange) == 0);
  CHECK(name(strange) == "?");
  CHECK(name(static_cast<op_kind>(200)) == "?");
}

TEST_CASE("operations carry what they need") {
  CHECK(pre_mul_sum(0.5).scale == 0.5);
  CHECK(minimum.kind == op_kind::min);
  const op mine = user_op([](auto...) {}, nullptr, false);
  CHECK(mine.kind == op_kind::user);
  CHECK_FALSE(mine.commutative);
  CHECK(mine.associative);
  CHECK(mine == mine);
  CHECK(sum != average);
}

TEST_CASE("an error says exactly its message and compares with its code") {
  const error problem{errc::timed_out, "all_reduce 7 waited 5 s for rank 3"};
  CHECK(std::string{problem.what()} == "all_reduce 7 waited 5 s for rank 3");
  CHECK(problem.code_value() == errc::timed_out);
  CHECK(problem.code() == errc::timed_out);
  CHECK(problem.code() == std::errc::timed_out);
  CHECK(problem.code() != errc::cancelled);
  CHECK(std::string{problem.code().category().name()} == "troupe");
  CHECK_FALSE(make_error_code(errc::ok));
  static_assert(std::is_nothrow_copy_constructible_v<error>);
  std::set<std::string> texts;
  for (int code = 0; code <= static_cast<int>(errc::out_of_memory); ++code)
    CHECK(texts.insert(make_error_code(static_cast<errc>(code)).message()).second);
}
