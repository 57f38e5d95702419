// SPDX-License-Identifier: Apache-2.0
#include "memory/types/types.hpp"

#include <algorithm>
#include <string>

#include "memory/error.hpp"

namespace troupe {

namespace {

struct type_names {
  std::string_view name;
  std::string_view nccl;
};

constexpr std::array<type_names, all_datatypes.size()> names_of_types{{{"i8", "int8"},
                                                                       {"u8", "uint8"},
                                                                       {"i32", "int32"},
                                                                       {"u32", "uint32"},
                                                                       {"i64", "int64"},
                                                                       {"u64", "uint64"},
                                                                       {"f16", "half"},
                                                                       {"bf16", "bfloat16"},
                                                                       {"f32", "float"},
                                                                       {"f64", "double"},
                                                                       {"f8e4m3", "f8e4m3"},
                                                                       {"f8e5m2", "f8e5m2"},
                                                                       {"c64", "complex64"},
                                                                       {"c128", "complex128"}}};

constexpr std::array<std::string_view, all_op_kinds.size()> names_of_ops{
    "sum", "prod", "min", "max", "avg", "pre_mul_sum", "land", "lor", "band", "bor", "bxor", "user"};

template <class Enum>
struct alias {
  std::string_view text;
  Enum value;
};

constexpr alias<datatype> type_aliases[] = {{"char", datatype::i8},
                                            {"int", datatype::i32},
                                            {"uint", datatype::u32},
                                            {"float16", datatype::f16},
                                            {"float32", datatype::f32},
                                            {"float64", datatype::f64},
                                            {"fp16", datatype::f16},
                                            {"fp32", datatype::f32},
                                            {"fp64", datatype::f64},
                                            {"fp8_e4m3", datatype::f8e4m3},
                                            {"fp8_e5m2", datatype::f8e5m2},
                                            {"fp8e4m3", datatype::f8e4m3},
                                            {"fp8e5m2", datatype::f8e5m2},
                                            {"f8_e4m3", datatype::f8e4m3},
                                            {"f8_e5m2", datatype::f8e5m2},
                                            {"fp8-e4m3", datatype::f8e4m3},
                                            {"fp8-e5m2", datatype::f8e5m2},
                                            {"float8_e4m3", datatype::f8e4m3},
                                            {"float8_e5m2", datatype::f8e5m2},
                                            {"cfloat", datatype::c64},
                                            {"cdouble", datatype::c128}};

constexpr alias<op_kind> op_aliases[] = {{"minimum", op_kind::min},
                                         {"maximum", op_kind::max},
                                         {"average", op_kind::avg},
                                         {"premulsum", op_kind::pre_mul_sum},
                                         {"mulsum", op_kind::pre_mul_sum}};

}  // namespace

std::string_view name(datatype type) {
  const auto index = static_cast<std::size_t>(type);
  return index < names_of_types.size() ? names_of_types[index].name : "?";
}

std::string_view nccl_name(datatype type) {
  const auto index = static_cast<std::size_t>(type);
  return index < names_of_types.size() ? names_of_types[index].nccl : "?";
}

std::optional<datatype> parse_datatype(std::string_view text) {
  for (datatype type : all_datatypes)
    if (text == name(type) || text == nccl_name(type)) return type;
  for (const auto& known : type_aliases)
    if (text == known.text) return known.value;
  return std::nullopt;
}

std::string_view name(op_kind kind) {
  const auto index = static_cast<std::size_t>(kind);
  return index < names_of_ops.size() ? names_of_ops[index] : "?";
}

std::optional<op_kind> parse_op(std::string_view text) {
  for (op_kind kind : all_op_kinds)
    if (kind != op_kind::user && text == name(kind)) return kind;
  for (const auto& known : op_aliases)
    if (text == known.text) return known.value;
  return std::nullopt;
}

bool op_name::fits(std::string_view text) noexcept {
  return text.size() <= longest && std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
}

op_name::op_name(std::string_view text) {
  if (text.empty() || !fits(text))
    throw error(errc::invalid_argument, "an operation's name has 1 to " + std::to_string(longest) +
                                            " printable ASCII characters; \"" +
                                            std::string{text.substr(0, 2 * longest)} + "\" is no such name");
  std::ranges::copy(text, text_.begin());
}

}  // namespace troupe
