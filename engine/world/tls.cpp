// SPDX-License-Identifier: Apache-2.0
#include "engine/world/tls.hpp"

#include <cstdlib>
#include <string>
#include <vector>

#include "engine/config/configuration.hpp"

namespace troupe {

std::shared_ptr<const actors::tls_identity> tls_of(const engine_options& o) {
  if (o.tls_certificate.empty() && o.tls_key.empty() && o.tls_authority.empty()) return nullptr;
  return actors::tls_identity::load({o.tls_certificate, o.tls_key, o.tls_authority});
}

std::shared_ptr<const actors::tls_identity> tls_of(const id_options& options) {
  engine_options o;
  o.tls_certificate = options.tls_certificate;
  o.tls_key = options.tls_key;
  o.tls_authority = options.tls_authority;
  return tls_of(with_environment(std::move(o)));
}

std::shared_ptr<const actors::tls_identity> tls_of_environment() {
  std::vector<std::string> said;
  for (const char* const name :
       {"TROUPE_ENGINE_TLS_CERTIFICATE", "TROUPE_ENGINE_TLS_KEY", "TROUPE_ENGINE_TLS_AUTHORITY"})
    if (const char* const value = std::getenv(name))  // NOLINT(concurrency-mt-unsafe): nobody here changes it
      said.push_back(std::string{name} + "=" + value);
  configuration read;
  read.add_environment(said);
  return tls_of(read.engine());
}

}  // namespace troupe
