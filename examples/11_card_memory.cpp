// SPDX-License-Identifier: Apache-2.0
// The memory of a card with four core groups, in three tiers (docs/tiers.md): the four calls, containers, the split, transfers from the
// host, also through the elements of an engine's card, what is refused; and the same from C.
#include "engine/bindings/c/troupe_card.h"
#include "memory/error.hpp"
#include "memory/tiers/card_memory.hpp"
#include <troupe.hpp>

#include <cstdio>
#include <memory_resource>
#include <span>
#include <vector>

namespace {

constexpr std::size_t MiB = std::size_t{1} << 20;

void tiers() {
  troupe::card_memory card{{.core_groups = 4, .hbm_bytes = 64 * MiB, .l1_bytes = 32 * MiB}};
  void* weights = card.malloc_local(2, 5'000'000);  // L1 of core group 2
  void* published = card.malloc_cross(100 * MiB);   // L2: more than any core group has
  std::pmr::vector<float> tile(1024, &card.l0(2));  // containers, in any tier
  std::printf("weights in L1: %d, published in L2: %d, tile in L0: %d\n", card.l1(2).contains(weights),
              card.l2().contains(published), card.l0(2).contains(tile.data()));
  try {
    card.move_split(48 * MiB);  // L2 would have 64 MiB left
  } catch (const troupe::error& refused) {
    std::printf("%s\n", refused.what());
  }
  card.free_cross(published);
  card.free_local(weights);
  card.move_split(48 * MiB);
  std::printf("L1 of 48 MiB each, L2 of %zu MiB\n", card.l2().use().capacity / MiB);
}

void from_host() {
  troupe::card_memory card{{.core_groups = 4, .hbm_bytes = 64 * MiB, .l1_bytes = 32 * MiB}};
  const std::vector<std::byte> host(10 * MiB, std::byte{7});
  std::vector<void*> local;
  for (int group = 0; group < card.core_groups(); ++group) local.push_back(card.malloc_local(group, host.size()));
  const auto two_tiers = card.upload(host, local, troupe::host_way::each_a_copy);
  const auto three_tiers = card.upload(host, local);  // one copy into L2, from where each core group takes it
  std::printf("over PCIe: %zu MiB with two tiers, %zu with three, and %zu over the ring\n", two_tiers.host_bytes / MiB,
              three_tiers.host_bytes / MiB, three_tiers.ring_bytes / MiB);
}

void through_elements() {
  troupe::engine_options options;
  options.layout = "1x1x4+host";  // ranks 0 to 3 are the core groups, rank 4 the host
  options.trace_routes = true;
  troupe::engine engine{options};
  engine.run(5, [](troupe::communicator& comm) {
    troupe::card card{comm};
    std::vector<float> weights(MiB / sizeof(float), card.is_host() ? 1.0F : 0.0F);
    card.upload(weights);  // the host's, to all core groups
    std::vector<float> part(card.is_host() ? 0 : 1000, weights.back()), whole(card.is_host() ? 4000 : 0);
    card.download(part, whole);  // every core group's part, one behind the other
    if (card.is_host()) std::printf("back from the core groups: %g … %g\n", whole.front(), whole.back());
  });
  for (const auto& of : engine.traffic())
    if (of.element.starts_with("pcie")) std::printf("%s: %llu bytes\n", of.element.c_str(), 0ULL + of.bytes);
}

void refused() {
  troupe::card_memory card{{.core_groups = 4, .hbm_bytes = 64 * MiB, .l1_bytes = 32 * MiB}};
  auto* block = static_cast<char*>(card.malloc_local(0, 100));
  const auto attempt = [&](const char* what, auto call) {
    try {
      call();
      std::printf("%s: done\n", what);
    } catch (const troupe::error& problem) {
      std::printf("%s: %s\n", what, problem.code().message().c_str());
    }
  };
  attempt("to the wrong tier", [&] { card.free_cross(block); });
  attempt("a part of a block", [&] { card.free_local(block + 64); });
  attempt("more than there is", [&] { card.malloc_local(0, 33 * MiB); });
  attempt("more than there could be", [&] { card.malloc_cross(~std::size_t{0}); });
  attempt("once", [&] { card.free_local(block); });
  attempt("twice", [&] { card.free_local(block); });
}

int from_c() {
  troupe_card* card;
  troupe_card_options sizes = {4, 2 << 20, 64 << 20, 32 << 20, 0};
  if (troupe_card_create(&sizes, &card) != 0) return std::fprintf(stderr, "%s\n", troupe_card_message()), 1;
  void* shared = nullptr;
  int wrong = troupe_malloc_cross(card, &shared, 50'000'000) != 0;
  wrong += troupe_free_cross(card, shared) != 0;
  wrong += troupe_free_cross(card, shared) == 0;  // a second time
  std::printf("from C: %d wrong\n", wrong);
  troupe_card_destroy(card);
  return wrong;
}

}  // namespace

int main() {
  tiers();
  from_host();
  through_elements();
  refused();
  return from_c();
}
