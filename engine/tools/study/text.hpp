// SPDX-License-Identifier: Apache-2.0
#pragma once
// How the study's tables write numbers.

#include <cstdio>
#include <string>

namespace troupe::study_text {

/// printf into a string; what exceeds 319 characters is cut.
template <class... Values>
std::string format(const char* pattern, Values... values) {
  char text[320];
  std::snprintf(text, sizeof text, pattern, values...);
  return text;
}

/// Microseconds with four significant digits or so: "30.08", "108.6", "12345".
inline std::string time_text(double us) { return format(us >= 10000.0 ? "%.0f" : us >= 100.0 ? "%.1f" : "%.2f", us); }

/// A field of CSV (RFC 4180): in quotation marks where it has to be.
inline std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string{"\"\""} : std::string{c};
  return quoted + '"';
}

}  // namespace troupe::study_text
