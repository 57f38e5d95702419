/* SPDX-License-Identifier: Apache-2.0
 *
 * A card's memory in three tiers for C: the four calls of spec 1 and what they need (docs/tiers.md; C++: memory/tiers/card_memory.hpp).
 *
 *   troupe_card* card;
 *   troupe_card_options sizes = {4, 2 << 20, 64 << 20, 32 << 20, 0};
 *   if (troupe_card_create(&sizes, &card) != 0) fprintf(stderr, "%s\n", troupe_card_message());
 *   void* weights;
 *   troupe_malloc_local(card, 2, &weights, 5000000);
 *   troupe_free_local(card, weights);
 *   troupe_card_destroy(card);
 *
 * All but troupe_card_destroy may be called by any thread at any time. They return TROUPE_CARD_OK, or what troupe_card_error names; the text is
 * troupe_card_message()'s in the same thread until its next failure. What they were to write is then untouched.
 */
#ifndef TROUPE_CARD_H
#define TROUPE_CARD_H

#include <stddef.h>

#include "memory/export.hpp"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct troupe_card troupe_card;

/* The numbers of troupe::errc. */
typedef enum troupe_card_error {
  TROUPE_CARD_OK = 0,
  TROUPE_CARD_INVALID_ARGUMENT = 1, /* a pointer, a size or a core group that cannot be; given back before; overwritten behind its end */
  TROUPE_CARD_SIZE_OVERFLOW = 3,    /* no memory could hold it */
  TROUPE_CARD_ABORTED = 11,         /* the heap came upon a head that was overwritten, and gives out and takes back no more */
  TROUPE_CARD_OUT_OF_MEMORY = 20    /* no room in the tier, or no memory of the system; a split that cannot move */
} troupe_card_error;

/* Bytes are whole pages of 8 KiB. */
typedef struct troupe_card_options {
  int core_groups;
  size_t l0_bytes;  /* of each core group */
  size_t hbm_bytes; /* of each core group: its L1, and its part of L2 */
  size_t l1_bytes;  /* of hbm_bytes */
  int shared;       /* not 0: in a segment that other processes can map */
} troupe_card_options;

/* options: NULL is the card of spec 1, 4 core groups with 15 GB each, half of it L1. */
TROUPE_API int troupe_card_create(const troupe_card_options* options, troupe_card** card);
/* NULL is nothing. Blocks are void afterwards. */
TROUPE_API void troupe_card_destroy(troupe_card* card);
TROUPE_API const char* troupe_card_message(void);

/* L1 of a core group, and L2, which all share. */
TROUPE_API int troupe_malloc_local(troupe_card* card, int core_group, void** block, size_t bytes);
TROUPE_API int troupe_free_local(troupe_card* card, void* block);
TROUPE_API int troupe_malloc_cross(troupe_card* card, void** block, size_t bytes);
TROUPE_API int troupe_free_cross(troupe_card* card, void* block);

/* How much of each core group's memory is L1; refused while something is allocated in what would leave its tier. */
TROUPE_API int troupe_card_move_split(troupe_card* card, size_t l1_bytes);
/* Of a shared card: its segment and a block's place in it. */
TROUPE_API int troupe_card_descriptor(const troupe_card* card);
TROUPE_API int troupe_card_offset(const troupe_card* card, const void* block, size_t* offset);

#ifdef __cplusplus
}
#endif

#endif
