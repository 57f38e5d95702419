#pragma once

/// Everything whose spelling depends on the version of CAF. Written for 0.17.x; moving to 0.18 or later should touch this file
/// (and the scheduler modules, whose base classes change) and nothing else:
///
///  here                                 0.17                                          0.18 and later
///  TROUPE_ATOM(name)                    atom constant of at most 10 characters        CAF_ADD_ATOM in a type id block
///  TROUPE_LOCAL_MESSAGE(type)           CAF_ALLOW_UNSAFE_MESSAGE_TYPE                 + CAF_ADD_TYPE_ID in a type id block
///  troupe::actors::spawn_actor          works round a defect                          system.spawn(function)
///  troupe::actors::inspect_fields       f(meta::type_name(..), fields...)             f.object(x).fields(...)
///
/// Deliberately includes only the core of CAF that declares names: a translation unit that spawns actors includes
/// <caf/event_based_actor.hpp> or <caf/stateful_actor.hpp> itself, because each costs seconds to compile.

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/atom.hpp>
#include <caf/config.hpp>
#include <caf/detail/type_traits.hpp>
#include <caf/exit_reason.hpp>
#include <caf/fwd.hpp>
#include <caf/meta/type_name.hpp>
#include <caf/spawn_options.hpp>

#include <type_traits>
#include <utility>

static_assert(CAF_VERSION >= 1700 && CAF_VERSION < 1800,
              "this file spells CAF 0.17; port it before building against another version");

/// Declares the tag type `<name>_atom` and its value `<name>_v` in the current namespace. The name has at most 10 characters of
/// a-z, A-Z, 0-9 and underscore (CAF packs it into 64 bits).
#define TROUPE_ATOM(name)                                                                                              \
  using name##_atom = ::caf::atom_constant<::caf::atom(#name)>;                                                        \
  inline constexpr name##_atom name##_v {}

/// Lets values of `type` travel in messages inside this process only: pointers and references stay valid, nothing is
/// serialised. Use at global namespace scope, before the first message of this type is made.
#define TROUPE_LOCAL_MESSAGE(type) CAF_ALLOW_UNSAFE_MESSAGE_TYPE(type)

namespace troupe::actors {

/// `where.spawn(function)` for a function (or function object) without arguments besides the optional self pointer. CAF 0.17
/// dereferences a null pointer to the empty argument tuple there: harmless in practice, but undefined, and libstdc++'s
/// assertions and UBSan stop at it. So there is always one argument. `where`: an actor system, or an actor (`*self`).
template <caf::spawn_options Options = caf::no_spawn_options, class Where, class Function>
auto spawn_actor(Where& where, Function function) {
  struct unused {};
  using arguments = typename caf::detail::get_callable_trait<Function>::type::arg_types;
  using self_pointer = typename caf::detail::tl_head<arguments>::type;
  if constexpr (std::is_pointer_v<self_pointer>)
    return where.template spawn<Options>([f = std::move(function)](self_pointer self, unused) { return f(self); },
                                         unused{});
  else return where.template spawn<Options>([f = std::move(function)](unused) { return f(); }, unused{});
}

/// Body of an `inspect(Inspector&, T&)` for a message that may leave the process: fields in order, under the type's name.
template <class Inspector, class... Fields>
typename Inspector::result_type inspect_fields(Inspector& inspector, const char* type, Fields&... fields) {
  return inspector(::caf::meta::type_name(type), fields...);
}

}  // namespace troupe::actors
