// SPDX-License-Identifier: Apache-2.0
#pragma once
// Threads that begin while one of these lives handle no signals: those are for the application's threads.

#include <csignal>

#include <pthread.h>

namespace troupe::actors {

class without_signals {
public:
  without_signals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~without_signals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  without_signals(const without_signals&) = delete;
  without_signals& operator=(const without_signals&) = delete;

private:
  sigset_t before_{};
};

}  // namespace troupe::actors
