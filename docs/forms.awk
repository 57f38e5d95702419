# SPDX-License-Identifier: Apache-2.0
# For Doxygen (docs/Doxyfile), which reads no file in the middle of a class: the forms of a collective where communicator.hpp includes them.
/^#define TROUPE_NAME / { name = $3 }
/^#include "engine\/api\/collective_forms.inc"/ {
  like = " As troupe::calls::" name "()."
  print "/// Blocking; throws error." like " Options may follow in braces."
  print "template <class... A> void " name "(A&&... a);"
  print "/// Returns at once." like
  print "template <class... A> [[nodiscard]] request " name "_async(A&&... a);"
  print "/// Is launched with the group." like
  print "template <class... A> request " name "_async(group& in, A&&... a);"
  print "/// To be started many times." like
  print "template <class... A> [[nodiscard]] persistent " name "_init(A&&... a);"
  print "/// In parts, where the collective has them (partitioned.hpp)." like
  print "template <class... A> [[nodiscard]] partitioned " name "_init(A&&... a, partitions how, call_options o = {});"
  next
}
{ print }
