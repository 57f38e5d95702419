// SPDX-License-Identifier: Apache-2.0
#pragma once
// How functions of tiles become nodes: the templates of flow.hpp, which includes this.

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/flow/flow.hpp"

namespace troupe {

namespace detail {

template <class T>
tile<T> tile_of(const tile_place& place, const tensor_shape& shape) {
  return {tensor<T>{reinterpret_cast<T*>(place.data), shape}, place.index};
}

template <class T>
using shape_for = tensor_shape;
/// body.shape(shapes of the inputs…) says what shape the output has.
template <class F, class... T>
concept says_shape = requires(const F& body, const shape_for<T>&... of) {
  tensor_shape{body.shape(of...)};
};
/// read.check(shapes of the inputs…) throws if they do not fit.
template <class F, class... T>
concept checks_shapes = requires(const F& read, const shape_for<T>&... of) {
  read.check(of...);
};

template <class F>
std::function<void()> begin_of(const std::shared_ptr<F>& body) {
  if constexpr (requires { body->begin(); }) return [body] { body->begin(); };
  else return {};
}

}  // namespace detail

/// What a function says of the shapes that it is to work on. Throws errc::invalid_argument with the node's name if it refuses them.
template <class Ask>
auto flow::asked(const std::string& name, const Ask& ask) const {
  try {
    return ask();
  } catch (const error& e) {
    refuse(name, e.what());
  }
}

template <class F, class... T>
tensor_shape flow::shape_of(const std::string& name, const F& body, const streams<T...>& inputs) const {
  if constexpr (detail::says_shape<F, T...>)
    return asked(name, [&] {
      return std::apply([&](const auto&... s) { return tensor_shape{body.shape(s...)}; }, inputs.shapes());
    });
  else return inputs.shapes()[0];
}

template <element T, std::invocable<tile<T>> F>
stream<T> flow::source(std::string name, const tensor_shape& shape, int tiles, F write, stream_options options) {
  const auto body = std::make_shared<F>(std::move(write));
  node_description what{.name = std::move(name), .output = stream_type{datatype_of<T>, shape, tiles}};
  what.work = [body, shape](std::span<const tile_place>, const tile_place* out, int) {
    (*body)(detail::tile_of<T>(*out, shape));
  };
  what.begin = detail::begin_of(body);
  what.options = options;
  return stream<T>{*add(std::move(what))};
}

template <element Out, element... T, class F>
stream<Out> flow::map(std::string name, const streams<T...>& inputs, const tensor_shape& shape, F body,
                      stream_options options) {
  static_assert(std::is_invocable_v<F&, tile<const T>..., tile<Out>>,
                "an operator is called as body(tile<const T>..., tile<Out>)");
  if constexpr (detail::says_shape<F, T...>)
    if (const tensor_shape says = shape_of(name, body, inputs); says != shape)
      refuse(name,
             "it gives tiles of shape " + to_string(says) + ", and is to give tiles of shape " + to_string(shape));
  const auto kept = std::make_shared<F>(std::move(body));
  node_description what{.name = std::move(name), .output = stream_type{datatype_of<Out>, shape, inputs.tiles()}};
  what.inputs = inputs.bases();
  what.work = [kept, shape, shapes = inputs.shapes()](std::span<const tile_place> in, const tile_place* out, int) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (*kept)(detail::tile_of<const T>(in[I], shapes[I])..., detail::tile_of<Out>(*out, shape));
    }
    (std::index_sequence_for<T...>{});
  };
  what.begin = detail::begin_of(kept);
  what.options = options;
  return stream<Out>{*add(std::move(what))};
}

template <element Out, element T, class F>
stream<Out> flow::fold(std::string name, const stream<T>& input, int every, const tensor_shape& shape, F body,
                       stream_options options) {
  const auto kept = std::make_shared<F>(std::move(body));
  node_description what{.name = std::move(name),
                        .output = stream_type{datatype_of<Out>, shape, every > 0 ? input.type().tiles / every : 0}};
  what.inputs = {input};
  what.every = every;
  what.work = [kept, shape, taken = input.type().shape](std::span<const tile_place> in, const tile_place* out, int at) {
    (*kept)(detail::tile_of<const T>(in[0], taken), detail::tile_of<Out>(*out, shape), at);
  };
  what.begin = detail::begin_of(kept);
  what.options = options;
  return stream<Out>{*add(std::move(what))};
}

template <element T, std::invocable<tile<T>> F>
stream<T> flow::buffer(const std::string& name, const stream<T>& input, int lead, F fill, stream_options options) {
  const auto kept = std::make_shared<F>(std::move(fill));
  const tensor_shape shape = input.type().shape;
  node_description what{.name = name, .output = input.type()};
  what.inputs = {input};
  what.lead = lead;
  what.work = [kept, shape](std::span<const tile_place> in, const tile_place* out, int) {
    if (out == nullptr) return;
    if (in.empty()) return (*kept)(detail::tile_of<T>(*out, shape));
    const auto from = detail::tile_of<const T>(in[0], shape).flat();
    std::copy(from.begin(), from.end(), detail::tile_of<T>(*out, shape).data());
  };
  what.begin = detail::begin_of(kept);
  what.options = options;
  return stream<T>{*add(std::move(what))};
}

template <element... T, class F>
void flow::sink(std::string name, const streams<T...>& inputs, F read) {
  static_assert(std::is_invocable_v<F&, tile<const T>...>, "a sink is called as read(tile<const T>...)");
  if constexpr (detail::checks_shapes<F, T...>)
    asked(name, [&] { std::apply([&](const auto&... s) { read.check(s...); }, inputs.shapes()); });
  const auto kept = std::make_shared<F>(std::move(read));
  node_description what{.name = std::move(name)};
  what.inputs = inputs.bases();
  what.work = [kept, shapes = inputs.shapes()](std::span<const tile_place> in, const tile_place*, int) {
    [&]<std::size_t... I>(std::index_sequence<I...>) { (*kept)(detail::tile_of<const T>(in[I], shapes[I])...); }
    (std::index_sequence_for<T...>{});
  };
  what.begin = detail::begin_of(kept);
  static_cast<void>(add(std::move(what)));
}

}  // namespace troupe
