/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives under SimGrid's SMPI, for oracle_test.cpp: written from the literature, knowing nothing of Troupe's scores.
 *
 *   smpi_collectives NAME RANKS BYTES [NAME RANKS BYTES …]
 *
 * Prints a line a job: NAME RANKS BYTES, then the virtual times in ns at which ranks 0, 1, … were done. The first RANKS processes
 * perform a job, the others wait. All jobs begin on all ranks at the same virtual time.
 *
 * Two things make SMPI's messages those of the model under test:
 *  - SMPI adds an envelope of 16 bytes to every message. Messages here are made 16 bytes shorter, so that what travels is what the
 *    model sends; hence no message may be shorter than 16 bytes.
 *  - With smpi/send-is-detached-thresh:0 a message starts when it has been sent and its receive is posted. All receives are
 *    posted before anything is sent, so it starts when it is sent.
 * Bytes are not looked at: every message is the same memory. Elements have 4 bytes. */
#include <mpi.h>
#include <simgrid/actor.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { envelope = 16, element = 4, most_messages = 1024 };

/* What a rank has posted. Receives are taken in the order in which they were posted. */
struct post {
  int me, ranks;
  MPI_Comm group;
  char* memory;
  MPI_Request in[most_messages], out[most_messages];
  int expected, taken, sent;
};

static int length(long bytes) {
  if (bytes < envelope) fprintf(stderr, "a message of %ld bytes is shorter than SMPI's envelope\n", bytes), exit(2);
  return (int)(bytes - envelope);
}
static void expect(struct post* p, long bytes, int from) {
  MPI_Irecv(p->memory, length(bytes), MPI_BYTE, from, 0, p->group, &p->in[p->expected++]);
}
static void take(struct post* p) { MPI_Wait(&p->in[p->taken++], MPI_STATUS_IGNORE); }
static void send(struct post* p, long bytes, int to) {
  MPI_Isend(p->memory, length(bytes), MPI_BYTE, to, 0, p->group, &p->out[p->sent++]);
}
static void send_and_wait(struct post* p, long bytes, int to) { MPI_Send(p->memory, length(bytes), MPI_BYTE, to, 0, p->group); }

static int corners_of(int ranks) {
  int corners = 1;
  while (2 * corners <= ranks) corners *= 2;
  return corners;
}

/* -- all-reduce -- */

/* Where part `index` of `elements` that are cut into `parts` begins: Troupe's rule (protocols/program/program.hpp, part_begin), as what is
 * compared is time, not the cut. Long parts begin at multiples of 64 elements. */
static long part_begin(long elements, long parts, long index) {
  const long begin = elements * index / parts;
  return index < parts && elements / parts >= 1024 ? begin / 64 * 64 : begin;
}
static long part_of(long bytes, int parts, int index) {
  const long elements = bytes / element;
  index = (index % parts + parts) % parts;
  return (part_begin(elements, parts, index + 1) - part_begin(elements, parts, index)) * element;
}

static void ring(struct post* p, long bytes) {
  const int n = p->ranks, before = (p->me + n - 1) % n, after = (p->me + 1) % n;
  for (int step = 0; step < 2 * (n - 1); ++step) expect(p, part_of(bytes, n, p->me - 1 - step), before);
  for (int step = 0; step < 2 * (n - 1); ++step) {
    send(p, part_of(bytes, n, p->me - step), after);
    take(p);
  }
}

/* Where the ranks are no power of two, the odd ones of the first pairs hand their data to the even ones and get the result. */
static void recursive_doubling(struct post* p, long bytes) {
  const int corners = corners_of(p->ranks), pairs = p->ranks - corners, paired = p->me < 2 * pairs;
  if (paired && p->me % 2 == 1) {
    expect(p, bytes, p->me - 1);
    send(p, bytes, p->me - 1);
    take(p);
    return;
  }
  const int corner = paired ? p->me / 2 : p->me - pairs;
  int peers[32], rounds = 0;
  for (int distance = 1; distance < corners; distance *= 2) {
    const int other = corner ^ distance;
    peers[rounds++] = other < pairs ? 2 * other : other + pairs;
  }
  if (paired) expect(p, bytes, p->me + 1);
  for (int round = 0; round < rounds; ++round) expect(p, bytes, peers[round]);
  if (paired) take(p);
  for (int round = 0; round < rounds; ++round) {
    send(p, bytes, peers[round]);
    take(p);
  }
  if (paired) send(p, bytes, p->me + 1);
}

/* Powers of two. */
static void halving_doubling(struct post* p, long bytes) {
  for (int distance = 1, share = 2; distance < p->ranks; distance *= 2, share *= 2) expect(p, bytes / share, p->me ^ distance);
  for (int distance = p->ranks / 2, share = p->ranks; distance > 0; distance /= 2, share /= 2) expect(p, bytes / share, p->me ^ distance);
  for (int distance = 1, share = 2; distance < p->ranks; distance *= 2, share *= 2) {
    send(p, bytes / share, p->me ^ distance);
    take(p);
  }
  for (int distance = p->ranks / 2, share = p->ranks; distance > 0; distance /= 2, share /= 2) {
    send(p, bytes / share, p->me ^ distance);
    take(p);
  }
}

/* SMPI's own, chosen with smpi/allreduce. lr sends a rank's part of the buffer, so `bytes` here are those of the model less an
 * envelope for each part. */
static void built_in(struct post* p, long bytes) {
  const int count = (int)((bytes - (long)p->ranks * envelope) / element);
  if (count % p->ranks != 0) fprintf(stderr, "lr takes another algorithm for a part that is not even\n"), exit(2);
  MPI_Allreduce(MPI_IN_PLACE, p->memory, count, MPI_FLOAT, MPI_SUM, p->group);
}

/* -- binomial tree, root 0 -- */

static int parent_of(int rank) { return rank & (rank - 1); }
/* Largest subtree first. Children of r are r + 2^i below r's lowest set bit. */
static int children_of(const struct post* p, int* children) {
  int below = p->me ? p->me & -p->me : 2 * corners_of(p->ranks), count = 0;
  for (below /= 2; below > 0; below /= 2)
    if (p->me + below < p->ranks) children[count++] = p->me + below;
  return count;
}

static void broadcast(struct post* p, long bytes, int one_after_the_other) {
  int children[32];
  const int count = children_of(p, children);
  if (p->me) expect(p, bytes, parent_of(p->me)), take(p);
  for (int i = 0; i < count; ++i)
    if (one_after_the_other) send_and_wait(p, bytes, children[i]);
    else send(p, bytes, children[i]);
}

static void reduce(struct post* p, long bytes) {
  int children[32];
  const int count = children_of(p, children);
  for (int i = count; i-- > 0;) expect(p, bytes, children[i]);
  for (int i = 0; i < count; ++i) take(p);
  if (p->me) send(p, bytes, parent_of(p->me));
}

/* -- contention -- */

/* All send to rank 0 at once: `bytes`, or as many times `bytes` as their number. */
static void incast(struct post* p, long bytes, int uneven) {
  for (int r = 1; p->me == 0 && r < p->ranks; ++r) expect(p, uneven ? r * bytes : bytes, r);
  for (int r = 1; p->me == 0 && r < p->ranks; ++r) take(p);
  if (p->me) send(p, uneven ? p->me * bytes : bytes, 0);
}

/* The lower half sends to the upper half at once, over one trunk. */
static void trunk(struct post* p, long bytes, int uneven) {
  const int half = p->ranks / 2, lower = p->me % half;
  const long mine = uneven ? (lower + 1) * bytes : bytes;
  if (p->me < half) send(p, mine, p->me + half);
  else expect(p, mine, lower), take(p);
}

/* -- jobs -- */

static void perform(struct post* p, const char* name, long bytes) {
  if (!strcmp(name, "ring")) ring(p, bytes);
  else if (!strcmp(name, "recursive_doubling")) recursive_doubling(p, bytes);
  else if (!strcmp(name, "halving_doubling")) halving_doubling(p, bytes);
  else if (!strcmp(name, "built_in")) built_in(p, bytes);
  else if (!strcmp(name, "broadcast")) broadcast(p, bytes, 0);
  else if (!strcmp(name, "broadcast_in_turn")) broadcast(p, bytes, 1);
  else if (!strcmp(name, "reduce")) reduce(p, bytes);
  else if (!strcmp(name, "incast")) incast(p, bytes, 0);
  else if (!strcmp(name, "uneven_incast")) incast(p, bytes, 1);
  else if (!strcmp(name, "trunk")) trunk(p, bytes, 0);
  else if (!strcmp(name, "uneven_trunk")) trunk(p, bytes, 1);
  else fprintf(stderr, "there is no job %s\n", name), exit(2);
  MPI_Waitall(p->sent, p->out, MPI_STATUSES_IGNORE);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int me, all;
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &all);
  static char* memory; /* one for all ranks: they are threads of one process */
  if (!memory) memory = calloc(1, 64L << 20);
  double* times = malloc((size_t)all * sizeof *times);
  struct post* p = malloc(sizeof *p);
  for (int job = 0; 3 * job + 3 < argc; ++job) {
    const char* name = argv[3 * job + 1];
    memset(p, 0, sizeof *p);
    p->memory = memory, p->me = me, p->ranks = atoi(argv[3 * job + 2]);
    const long bytes = atol(argv[3 * job + 3]);
    MPI_Comm_split(MPI_COMM_WORLD, me < p->ranks, me, &p->group);
    /* A second a job, which none takes, and none is late for. */
    const double begin = job + 1;
    if (MPI_Wtime() >= begin) fprintf(stderr, "job %d begins late\n", job), exit(2);
    sg_actor_sleep_for(begin - MPI_Wtime());
    if (me < p->ranks) perform(p, name, bytes);
    double took = (MPI_Wtime() - begin) * 1e9;
    MPI_Gather(&took, 1, MPI_DOUBLE, times, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (me == 0) {
      printf("%s %d %ld", name, p->ranks, bytes);
      for (int r = 0; r < p->ranks; ++r) printf(" %.6f", times[r]);
      printf("\n");
    }
    MPI_Comm_free(&p->group);
  }
  free(times);
  free(p);
  MPI_Finalize();
  return 0;
}
