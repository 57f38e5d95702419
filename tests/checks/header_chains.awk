# SPDX-License-Identifier: Apache-2.0
# awk -f header_chains.awk HEADER...: the headers in chains, one a line, so that one compilation of a chain, in its order, shows of each of them
# that it compiles on its own. All that stands before a header in its chain is what the header itself includes, directly or through others: it
# sees nothing that it would not see alone. That reasoning needs includes ahead of the code and under no condition; a header with others stands
# alone in its chain and is no part of what the others are known to include.
# A file is named by its path from the root; "engine/api/" may be left out, as for users.

function include_of(line) {
  if (!match(line, /[<"][^>"]+[>"]/)) return ""
  line = substr(line, RSTART, RLENGTH)
  if (line ~ /^"/) {
    gsub(/"/, "", line)
    if (!(line in is_header) && ("engine/api/" line) in is_header) line = "engine/api/" line
  }
  return line
}

# Fills within[header, …] with all that it includes.
function gather(header,   i, inner, parts, n, part) {
  if (header in gathered) return
  gathered[header] = 1
  for (i = 1; i <= direct_count[header]; i++) {
    part = direct[header, i]
    add(header, part)
    if (!(part in is_header) || part in alone) continue
    gather(part)
    n = split(members[part], parts, "\n")
    for (inner = 1; inner <= n; inner++) add(header, parts[inner])
  }
}
function add(header, part) {
  if (part == "" || (header, part) in within) return
  within[header, part] = 1
  members[header] = members[header] part "\n"
  size[header]++
}

BEGIN {
  for (i = 1; i < ARGC; i++) is_header[ARGV[i]] = 1
  for (i = 1; i < ARGC; i++) {
    file = ARGV[i]; depth = 0; code = 0; order[++count] = file; size[file] = 0
    while ((got = (getline line < file)) > 0) {
      sub(/^[ \t]+/, "", line)
      if (line ~ /^#[ \t]*include/) {
        if (depth || code) alone[file] = 1
        direct[file, ++direct_count[file]] = include_of(line)
      } else if (line ~ /^#[ \t]*if/) depth++
      else if (line ~ /^#[ \t]*endif/) depth--
      else if (line ~ /^#[ \t]*pragma[ \t]+once/) { }
      else if (line != "" && line !~ /^\/\//) code = 1
    }
    if (got < 0) { print file ": cannot be read" > "/dev/stderr"; exit 1 }
    close(file)
  }
  for (i = 1; i <= count; i++) gather(order[i])

  # By the number of files they include, the most first; each takes the largest one that is left of what it includes, and so on downward.
  for (i = 2; i <= count; i++) {
    header = order[i]
    for (j = i - 1; j >= 1 && size[order[j]] < size[header]; j--) order[j + 1] = order[j]
    order[j + 1] = header
  }
  for (i = 1; i <= count; i++) {
    if (order[i] in used) continue
    chain = last = order[i]
    used[last] = 1
    for (j = i + 1; j <= count && !(order[i] in alone); j++) {
      if (order[j] in used || order[j] in alone || !((last, order[j]) in within)) continue
      last = order[j]
      used[last] = 1
      chain = last " " chain
    }
    print chain
  }
}
