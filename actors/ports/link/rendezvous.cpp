// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/link/rendezvous.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "actors/ports/link/handshake.hpp"
#include "memory/error.hpp"

namespace troupe::actors {

namespace {

using clock = std::chrono::steady_clock;

constexpr std::chrono::seconds most_shaking{5};
constexpr std::size_t most_strangers = 256;
constexpr std::chrono::seconds most_connecting{3};  ///< to one of several addresses

constexpr std::chrono::seconds most_unserved{3};  ///< where somebody served before
/// For one whose connection has ended to come again: a flood of strangers may have cut it.
constexpr std::chrono::seconds most_gone{1};
/// A process that waits for longer logs it.
constexpr std::chrono::seconds overdue_after{5};

/// "processes 0, 3, 5 and 9 others". @param from what is counted as 0
std::string list_of(std::span<const std::uint32_t> processes, std::uint32_t from = 0) {
  constexpr std::size_t most = 16;
  std::string text;
  for (std::size_t i = 0; i < std::min(most, processes.size()); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(processes[i] - from);
  if (processes.size() > most) text += " and " + std::to_string(processes.size() - most) + " others";
  return (processes.size() == 1 ? "process " : "processes ") + text;
}

/// The same of a job whose processes from `first_new` on are counted apart: "process 1 and new processes 0, 1".
std::string list_of_both(const std::vector<std::uint32_t>& processes, std::uint32_t first_new) {
  const auto middle = std::ranges::lower_bound(processes, first_new) - processes.begin();
  const auto old = std::span(processes).first(static_cast<std::size_t>(middle));
  const auto fresh = std::span(processes).subspan(static_cast<std::size_t>(middle));
  if (fresh.empty()) return list_of(old);
  return (old.empty() ? "" : list_of(old) + " and ") + "new " + list_of(fresh, first_new);
}

/// One end of a connection: the handshake, then messages. Non-blocking.
class talk {
public:
  /// @param identity null: without TLS, as every Unix socket is
  talk(descriptor socket, handshake hands, std::shared_ptr<const tls_identity> identity, tls_line::side here)
      : socket_(std::move(socket)), hands_(std::move(hands)) {
    add(hands_.take_output());
    if (identity == nullptr || socket_address::own(socket_.get()).family() == AF_UNIX) return;
    if (here == tls_line::side::caller) tls_ = std::make_unique<tls_line>(std::move(identity), here);
    else waits_for_tls_ = std::move(identity);
  }
  int socket() const { return socket_.get(); }
  /// Before TLS has begun nothing is taken.
  bool wants_to_write() const { return tls_ ? tls_->holds_output() : !out_.empty(); }
  const handshake& hands() const { return hands_; }
  bool known() const { return hands_.state() == handshake::status::done; }

  void say(const auto& what) {
    const std::vector<std::byte> body = to_wire(what);
    const auto bytes = static_cast<std::uint32_t>(body.size());
    const auto* const head = reinterpret_cast<const std::byte*>(&bytes);
    out_.insert(out_.end(), head, head + sizeof bytes);
    add(body);
  }
  /// Reads and writes what can be. False: the connection has ended; why() says how.
  bool go_on() try {
    if (waits_for_tls_ && !look_how_it_begins()) return why_.empty();
    for (std::byte some[4096];;) {
      const ssize_t got =
          tls_ ? tls_->receive(socket_.get(), some) : ::recv(socket_.get(), some, sizeof some, MSG_DONTWAIT);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
      if (got <= 0) return fail(got == 0 ? "the connection was closed" : text_of_problem(tls_.get(), errno));
      std::span<const std::byte> came{some, static_cast<std::size_t>(got)};
      if (!known()) {
        if (tls_) hands_.bind(tls_->binding());
        came = came.subspan(hands_.feed(came));
        add(hands_.take_output());
        if (hands_.state() == handshake::status::refused) {
          write();
          return fail(hands_.why());
        }
      }
      in_.add(came);
      if (in_.held() > most_message) return fail("a message that is too long came");
    }
    return write();
  } catch (const error& e) {  // of TLS
    return fail(e.what());
  }
  /// The body of the next message, if it is there.
  std::optional<std::vector<std::byte>> next(std::uint32_t most) {
    if (!known()) return std::nullopt;
    auto body = in_.next(most);
    if (in_.too_long()) fail("a message that is too long came");
    return body;
  }
  const std::string& why() const { return why_; }
  /// Why it is no process of this job; empty: it may be one.
  std::string why_not() const { return hands_.why().empty() && tls_ ? tls_->why() : hands_.why(); }

private:
  /// False: nothing has come yet, or it has ended.
  bool look_how_it_begins() {
    std::byte first{};
    const ssize_t seen = ::recv(socket_.get(), &first, 1, MSG_DONTWAIT | MSG_PEEK);
    if (seen < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
    if (seen <= 0) return fail(seen == 0 ? "the connection was closed" : text_of_errno(errno));
    const auto identity = std::exchange(waits_for_tls_, nullptr);
    if (begins_tls(first)) tls_ = std::make_unique<tls_line>(identity, tls_line::side::answerer);
    else hands_.refuse_plain();
    return true;
  }
  void add(const std::vector<std::byte>& more) { out_.insert(out_.end(), more.begin(), more.end()); }
  bool fail(std::string why) {
    why_ = std::move(why);
    return false;
  }
  bool write() {
    while (!out_.empty()) {
      const iovec all{out_.data(), out_.size()};
      const ssize_t taken = tls_ ? tls_->send(socket_.get(), {&all, 1})
                                 : ::send(socket_.get(), out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (taken < 0 && errno == EINTR) continue;
      if (taken < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
      if (taken < 0) return fail(text_of_problem(tls_.get(), errno));
      out_.erase(out_.begin(), out_.begin() + taken);
    }
    if (tls_ && !tls_->flush(socket_.get()) && errno != EAGAIN) return fail(text_of_problem(tls_.get(), errno));
    return true;
  }

  descriptor socket_;
  handshake hands_;
  std::shared_ptr<const tls_identity> waits_for_tls_;  ///< of an answerer, until something has come
  std::unique_ptr<tls_line> tls_;
  message_reader in_;
  std::vector<std::byte> out_;
  std::string why_;
};

}  // namespace

// -- the service --------------------------------------------------------------------------------------------------------------

struct rendezvous_service::guest {
  guest(descriptor s, handshake h, const std::shared_ptr<const tls_identity>& tls)
      : line(std::move(s), std::move(h), tls, tls_line::side::answerer) {}
  talk line;
  clock::time_point came = clock::now();
  std::optional<enrolment> said;
  bool gone = false;
};

rendezvous_service::rendezvous_service(const std::string& listen, std::uint32_t processes, const job_key& key,
                                       std::uint64_t build, std::shared_ptr<const tls_identity> tls, time_point until)
    : processes_(processes),
      until_(until),
      key_(key),
      build_(build),
      tls_(std::move(tls)),
      bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  const socket_address at = socket_address::resolve(listen).front();
  if (!key.present() && !at.is_local())
    throw error(errc::bad_config,
                "to listen at " + listen +
                    ", where strangers could come, the job needs a key: set TROUPE_KEY or "
                    "TROUPE_KEY_FILE in every process (troupe rendezvous: --key-file), or let troupe launch make one");
  listener_ = listen_at(at);
  address_ = socket_address::own(listener_.get()).to_string();
  while (job_ == 0) fill_random(std::as_writable_bytes(std::span(&job_, 1)));
  thread_ = std::thread([this] {
    work();
    listener_ = {};  // else who comes late would wait for an answer as long as this object lives
    guests_.clear();
    over_.store(true);
  });
}

rendezvous_service::~rendezvous_service() { stop(); }

void rendezvous_service::ask_to_stop() {
  stopping_.store(true);
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = ::write(bell_.get(), &one, sizeof one);
}

void rendezvous_service::refuse(const std::string& why, std::uint32_t first) {
  {
    const std::lock_guard lock(mutex_);
    refusal_ = why;
    refused_from_ = first;
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = ::write(bell_.get(), &one, sizeof one);
}

/// Somebody outside wants something.
void rendezvous_service::heed_bell() {
  std::uint64_t rung = 0;
  [[maybe_unused]] const ssize_t ignored = ::read(bell_.get(), &rung, sizeof rung);
  const std::lock_guard lock(mutex_);
  if (!refusal_.empty() && !done_.load()) refuse_all(refusal_, refused_from_);
}

void rendezvous_service::wait() {
  if (thread_.joinable()) thread_.join();
}

void rendezvous_service::stop() {
  ask_to_stop();
  wait();
}

/// As many as the first one says who is here, if nobody has said it before.
std::uint32_t rendezvous_service::processes() const {
  if (processes_ > 0) return processes_;
  for (const auto& g : guests_)
    if (g->said) return g->said->processes;
  return 0;
}

/// A process that has been told and does not go holds the others up only for a while.
bool rendezvous_service::has_time() const {
  const auto now = clock::now();
  return done_.load() ? now - done_at_ < most_shaking : now < until_;
}

void rendezvous_service::work() {
  std::vector<pollfd> waits;
  bool accepting = true;
  while (!stopping_.load() && has_time()) {
    // Without descriptors callers wait; else this would spin.
    waits.assign({{bell_.get(), POLLIN, 0}, {accepting ? listener_.get() : -1, POLLIN, 0}});
    for (const auto& g : guests_)
      waits.push_back({g->line.socket(), static_cast<short>(g->line.wants_to_write() ? POLLIN | POLLOUT : POLLIN), 0});
    ::poll(waits.data(), waits.size(), 1000);
    if (waits.front().revents != 0) heed_bell();
    std::string why;
    while (descriptor s = accept_from(listener_.get(), why)) {
      if (!is_same_user(s.get())) continue;
      tune_socket(s.get(), 5000);
      guests_.push_back(std::make_unique<guest>(
          std::move(s), handshake::answering({job_, 0, rendezvous_process, build_}, key_), tls_));
      make_room();
    }
    accepting = why.empty();
    bool changed = false;
    for (const auto& g : guests_) {  // not in erase_if: take_message() looks at all of them
      const bool open = g->line.go_on();
      if (open && !g->said) changed = take_message(*g) || changed;
      if (!open && !g->said) note_turned_away(*g);
      if (!open && g->said)
        gone_[g->said->process] =
            "pid " + std::to_string(g->said->place.pid) + " on host " + g->said->place.host + ": " + g->line.why();
      const bool slow = !g->said && clock::now() - g->came > most_shaking;
      g->gone = !open || slow || !g->line.why().empty();
    }
    const std::size_t before = guests_.size();
    std::erase_if(guests_, [](const auto& g) { return g->gone; });
    if (done_.load()) {
      if (guests_.empty()) return;  // all have read it, and closed their ends
    } else if (changed || guests_.size() != before) {
      tell_all_who_came();
      finish();
    }
  }
}

/// Processes that wait in vain are told which caller was turned away last: it may be the one that they miss.
void rendezvous_service::note_turned_away(const guest& who) {
  std::string why = who.line.why_not();
  // A caller with another key sees that first, at this side's proof, and goes.
  if (const std::uint32_t from = who.line.hands().peer(); why.empty() && from != rendezvous_process)
    why = "it says that it is process " + std::to_string(from) +
          ", and has closed the connection at this side's proof, as one with another key does";
  if (!why.empty()) turned_away_ = socket_address::other(who.line.socket()).to_string() + ": " + why;
}

/// Of those who have not said who they are the oldest goes, if there are too many.
void rendezvous_service::make_room() {
  const auto nobody = [](const auto& g) { return !g->said; };
  if (std::count_if(guests_.begin(), guests_.end(), nobody) > static_cast<std::ptrdiff_t>(most_strangers + processes()))
    guests_.erase(std::find_if(guests_.begin(), guests_.end(), nobody));
}

/// True: somebody has said who it is.
bool rendezvous_service::take_message(guest& from) {
  const auto body = from.line.next(most_enrolment);
  if (!body) return false;
  std::optional<enrolment> e = enrolment_from(*body);
  rendezvous_answer no;
  if (!e) no.refused = "it did not say who it is";
  else no.refused = why_no_enrolment(*e, from.line.hands().peer(), processes());
  if (done_.load() && no.refused.empty()) no.refused = refused_;
  for (const auto& g : guests_)
    if (no.refused.empty() && g->said && g->said->process == e->process)
      no.refused = "there is a process " + std::to_string(e->process) + " already: pid " +
                   std::to_string(g->said->place.pid) + " on host " + g->said->place.host + ", and now pid " +
                   std::to_string(e->place.pid) + " on host " + e->place.host;
  if (!no.refused.empty()) {
    from.line.say(no);
    static_cast<void>(from.line.go_on());
    return false;
  }
  gone_.erase(e->process);
  from.said = std::move(e);
  return true;
}

void rendezvous_service::tell_all_who_came() {
  rendezvous_answer so_far;
  for (std::uint32_t p = 0; p < processes(); ++p)
    if (std::none_of(guests_.begin(), guests_.end(), [p](const auto& g) { return g->said && g->said->process == p; })) {
      if (const auto gone = gone_.find(p); gone != gone_.end()) so_far.gone.push_back({p, gone->second});
      else so_far.missing.push_back(p);
    }
  if (so_far.missing.empty() && so_far.gone.empty()) return;
  so_far.turned_away = turned_away_;
  for (const auto& g : guests_) {
    if (!g->said) continue;
    g->line.say(so_far);
    static_cast<void>(g->line.go_on());
  }
}

void rendezvous_service::refuse_all(const std::string& why, std::uint32_t first) {
  rendezvous_answer no;
  no.refused = why;
  for (const auto& g : guests_) {
    if (!g->said || g->said->process < first) continue;
    g->line.say(no);
    static_cast<void>(g->line.go_on());
  }
  refused_ = why;
  done_at_ = clock::now();
  done_.store(true);
}

namespace {
/// The first line in which they differ, of each.
std::pair<std::string, std::string> first_difference(const std::string& a, const std::string& b) {
  const std::size_t at =
      static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  const auto line = [at](const std::string& s) {
    const std::size_t before = at == 0 ? s.npos : s.rfind('\n', at - 1);
    const std::size_t begin = before == s.npos ? 0 : before + 1;
    return s.substr(begin, s.find('\n', begin) - begin);
  };
  return {line(a), line(b)};
}
}  // namespace

/// If all are there.
void rendezvous_service::finish() {
  std::map<std::uint32_t, const enrolment*> all;
  for (const auto& g : guests_)
    if (g->said) all[g->said->process] = &*g->said;
  came_ = processes();
  if (came_ == 0 || all.size() < came_) return;
  rendezvous_answer yes;
  yes.complete = true;
  yes.all.job = job_;
  std::uint64_t ranks = 0;
  for (const auto& [process, e] : all) {
    if (e->settings != all[0]->settings) {
      const auto [first, other] = first_difference(all[0]->settings, e->settings);
      return refuse_all("the engine options of processes 0 and " + std::to_string(process) + " differ: \"" + first +
                        "\" and \"" + other + "\"; all processes of a job must have the same");
    }
    if (yes.all.costs.empty()) yes.all.costs = e->costs;
    if (e->costs.size() != yes.all.costs.size() ||
        !std::ranges::all_of(e->costs, [](double c) { return std::isfinite(c); }))
      return refuse_all("the costs that process " + std::to_string(process) + " says its machine has are none");
    // All plan by the same numbers; what is dear somewhere is dear for the job, whose operations end with the slowest.
    std::ranges::transform(e->costs, yes.all.costs, yes.all.costs.begin(),
                           [](double a, double b) { return std::max(a, b); });
    process_place place = e->place;
    place.first_rank = static_cast<std::uint32_t>(ranks);
    ranks += place.ranks;
    yes.all.processes.push_back(std::move(place));
  }
  if (ranks > most_ranks_of_job) return refuse_all("a job has at most 16777216 ranks, not " + std::to_string(ranks));
  if (const std::string why = trouble_with_groups(yes.all); !why.empty()) return refuse_all(why);
  for (const auto& g : guests_) {
    if (!g->said) continue;
    g->line.say(yes);
    static_cast<void>(g->line.go_on());
  }
  done_at_ = clock::now();
  done_.store(true);
}

// -- a process --------------------------------------------------------------------------------------------------------------

namespace {

class joining {
public:
  joining(const std::string& rendezvous, const job_key& key, std::uint64_t build, const enrolment& mine,
          const join_limits& limits, std::shared_ptr<const tls_identity> tls)
      : rendezvous_(rendezvous), key_(key), build_(build), mine_(mine), limits_(limits), tls_(std::move(tls)) {}

  roster run() {
    for (auto pause = std::chrono::milliseconds{10};; pause = std::min(2 * pause, std::chrono::milliseconds{200})) {
      if (std::optional<roster> found = try_once()) return std::move(*found);
      // A flood of strangers may cut a connection; but a process that has ended does not serve again.
      if ((limits_.served || told_) && clock::now() - spoke_ > most_unserved)
        throw error(errc::peer_lost, "nobody serves at " + rendezvous_ + " any more (" + problem_ + ")" +
                                         (told_ ? "; " + who_has_not_come() : ""));
      nap(pause);
    }
  }

private:
  /// Nothing: nobody serves there yet.
  std::optional<roster> try_once() {
    const std::vector<socket_address> all = addresses();
    for (const socket_address& at : all) {
      descriptor s;
      try {
        s = begin_connect(at);
      } catch (const error& e) {
        problem_ = e.what();
        continue;
      }
      const auto begun = clock::now();
      bool answered = false;
      while (!(answered = wait_for(s.get(), POLLOUT)) && (all.size() == 1 || clock::now() - begun < most_connecting)) {}
      if (!answered) {
        problem_ = at.to_string() + " does not answer";
        continue;
      }
      if (const int bad = connect_error(s.get()); bad != 0) {
        problem_ = at.to_string() + ": " + text_of_errno(bad);
        continue;
      }
      if (!is_same_user(s.get()))
        throw error(errc::mismatch, "the rendezvous at " + rendezvous_ + " is another user's");
      if (auto found = speak(std::move(s))) return found;
    }
    return std::nullopt;
  }

  std::vector<socket_address> addresses() const {
    std::vector<socket_address> all;
    for (std::size_t from = 0; from <= rendezvous_.size();) {
      const std::size_t to = std::min(rendezvous_.find(',', from), rendezvous_.size());
      for (const socket_address& at : socket_address::resolve(std::string_view{rendezvous_}.substr(from, to - from)))
        all.push_back(at);
      from = to + 1;
    }
    return all;
  }

  std::optional<roster> speak(descriptor s) {
    talk line{std::move(s), handshake::calling({0, mine_.process, rendezvous_process, build_}, key_), tls_,
              tls_line::side::caller};
    bool said = false;
    problem_ = "what listens there does not answer as a rendezvous does; it may be another program";
    for (;;) {
      const bool open = line.go_on();
      if (const std::string why = line.why_not(); !why.empty())
        throw error(errc::mismatch, "the rendezvous at " + rendezvous_ + " refused this process: " + why);
      while (const auto body = line.next(most_message)) {
        std::optional<rendezvous_answer> a = rendezvous_answer_from(*body);
        if (!a) throw error(errc::io, "the rendezvous at " + rendezvous_ + " sent what cannot be read");
        if (!a->refused.empty()) throw error(errc::mismatch, a->refused);
        if (a->complete) {
          if (const std::string why = why_no_roster(a->all, mine_); !why.empty())
            throw error(errc::io, "the rendezvous at " + rendezvous_ + " sent what cannot be: " + why);
          return std::move(a->all);
        }
        turned_away_ = std::move(a->turned_away);
        note_missing(std::move(a->missing), std::move(a->gone));
      }
      if (!open) {
        if (said) problem_ = "the rendezvous at " + rendezvous_ + ": " + line.why(), spoke_ = clock::now();
        else problem_ += " (" + line.why() + ")";
        return std::nullopt;
      }
      if (line.known() && !std::exchange(said, true)) {
        line.say(mine_);
        continue;
      }
      wait_for(line.socket(), line.wants_to_write() ? POLLIN | POLLOUT : POLLIN);
    }
  }

  bool grows() const { return limits_.first_new < mine_.processes; }
  void note_missing(std::vector<std::uint32_t> missing, std::vector<departure> gone) {
    told_ = true;
    missing_ = std::move(missing);
    // Old processes of a job that grows go because of their own deadlines; and another one may come in a new one's place.
    if (grows()) {
      for (const departure& d : gone)
        if (d.process >= limits_.first_new) missing_.push_back(d.process);
      std::ranges::sort(missing_);
      gone.clear();
    }
    if (gone_.empty()) gone_since_ = clock::now();
    gone_ = std::move(gone);
  }

  /// False: nothing yet.
  bool wait_for(int socket, int events) {
    check();
    pollfd wait{socket, static_cast<short>(events), 0};
    return ::poll(&wait, 1, 50) > 0;
  }
  void nap(std::chrono::milliseconds time) {
    check();
    ::poll(nullptr, 0, static_cast<int>(time.count()));
  }
  void check() {
    if (limits_.cancelled && limits_.cancelled()) throw error(errc::cancelled, "the join was cancelled");
    const auto now = clock::now();
    if (now >= limits_.until) {
      if (!told_)
        throw error(errc::timed_out, who() + " found no rendezvous at " + rendezvous_ + " in time" + why_unfound());
      throw error(errc::timed_out, who() + " waited in vain at " + rendezvous_ + ": " + who_has_not_come());
    }
    if (!gone_.empty() && now - gone_since_ > most_gone)
      throw error(errc::peer_lost, who() + " waited in vain at " + rendezvous_ + ": " + who_has_not_come());
    if (is_overdue_ || now < begun_ + overdue_after || !is_first()) return;
    is_overdue_ = true;
    if (limits_.overdue)
      limits_.overdue(!told_ ? who() + " finds no rendezvous at " + rendezvous_ + why_unfound()
                             : who() + " waits at " + rendezvous_ + ": " + who_has_not_come());
  }
  /// One tells of those who are missing: of those who have come the first.
  bool is_first() const {
    return !told_ || std::ranges::lower_bound(missing_, mine_.process) - missing_.begin() ==
                         static_cast<std::ptrdiff_t>(mine_.process);
  }
  std::string who() const {
    const bool is_new = mine_.process >= limits_.first_new;
    return (is_new ? "new process " : "process ") +
           std::to_string(is_new ? mine_.process - limits_.first_new : mine_.process) + " of " +
           std::to_string(is_new ? mine_.processes - limits_.first_new : mine_.processes);
  }
  std::string why_unfound() const {
    return (problem_.empty() ? "" : " (" + problem_ + ")") +
           (limits_.unserved.empty() ? "" : "; this process could not serve it itself: " + limits_.unserved);
  }
  std::string who_has_not_come() const {
    std::string text;
    if (!missing_.empty())
      text = list_of_both(missing_, limits_.first_new) + (missing_.size() == 1 ? " has" : " have") + " not come";
    for (const departure& d : gone_)
      text += (text.empty() ? "process " : "; process ") + std::to_string(d.process) + " (" + d.who_and_how +
              ") had come, and has gone";
    if (text.empty()) text = "all others had come";
    return text + (turned_away_.empty() ? "" : "; turned away was " + turned_away_);
  }

  const std::string& rendezvous_;
  const job_key& key_;
  const std::uint64_t build_;
  const enrolment& mine_;
  const join_limits& limits_;
  const std::shared_ptr<const tls_identity> tls_;
  std::vector<std::uint32_t> missing_;
  std::vector<departure> gone_;
  clock::time_point gone_since_{};
  bool told_ = false;  ///< who is missing
  bool is_overdue_ = false;
  const clock::time_point begun_ = clock::now();
  clock::time_point spoke_ = begun_;  ///< the last time that somebody was there
  std::string problem_, turned_away_;
};

}  // namespace

roster enrol(const std::string& rendezvous, const job_key& key, std::uint64_t build, const enrolment& mine,
             const join_limits& limits, std::shared_ptr<const tls_identity> tls) {
  return joining{rendezvous, key, build, mine, limits, std::move(tls)}.run();
}

}  // namespace troupe::actors
