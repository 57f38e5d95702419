// all_gather_async(std::vector<float>(…), out) compiled, and read memory that was free. That what follows compiles is the test.

#include <doctest/doctest.h>

#include <troupe.hpp>

#include <array>
#include <span>
#include <vector>

using namespace troupe;

namespace {

using vec = std::vector<float>;

template <class In, class Out>
concept gathers_async = requires(communicator& c, In&& in, Out&& out) {
  static_cast<void>(c.all_gather_async(std::forward<In>(in), std::forward<Out>(out)));
};
template <class In, class Out>
concept gathers_in_group = requires(communicator& c, group& g, In&& in, Out&& out) {
  c.all_gather_async(g, std::forward<In>(in), std::forward<Out>(out));
};
template <class In, class Out>
concept gathers_persistently = requires(communicator& c, In&& in, Out&& out) {
  static_cast<void>(c.all_gather_init(std::forward<In>(in), std::forward<Out>(out)));
};
template <class In, class Out>
concept gathers_now = requires(communicator& c, In&& in, Out&& out) {
  c.all_gather(std::forward<In>(in), std::forward<Out>(out));
};
template <class In>
concept sends_async = requires(communicator& c, In&& in) {
  static_cast<void>(c.send_async(std::forward<In>(in), 1));
};

template <class In, class Out>
constexpr bool all_forms = gathers_async<In, Out>&& gathers_in_group<In, Out>&& gathers_persistently<In, Out>;
template <class In, class Out>
constexpr bool no_form = !gathers_async<In, Out> && !gathers_in_group<In, Out> && !gathers_persistently<In, Out>;

static_assert(all_forms<vec&, vec&>);
static_assert(all_forms<const vec&, vec&>);
static_assert(all_forms<std::span<const float>, std::span<float>>);  // temporaries that own nothing
static_assert(all_forms<float (&)[4], std::array<float, 8>&>);
static_assert(no_form<vec, vec&>);
static_assert(no_form<vec&, vec>);
static_assert(no_form<const vec, vec&>);
static_assert(no_form<std::array<float, 4>, vec&>);
static_assert(gathers_now<vec, vec&>);  // done before the temporary ends
static_assert(sends_async<vec&> && !sends_async<vec>);

}  // namespace

TEST_CASE("spans that are temporaries are taken by every form") {
  engine e;
  auto comms = e.communicators(1);
  vec in(4, 2), out(4);
  group g;
  comms[0].all_gather_async(g, std::span(in), std::span(out));
  g.wait();
  CHECK(out == in);
}
