# Prints one entry of an apt source file with another suite: everything else (address, keyring, options) stays.
# Variables: number (the entry as apt counts: stanza in .sources, line in .list), format (sources or list), suite.

format == "list" {
  if (FNR == number) {
    line = $0
    sub(/[[:space:]]*#.*$/, "", line)
    sub(/^[[:space:]]*deb-src/, "deb", line)
    # deb [options] address suite components: options may hold spaces, so they are taken off first.
    options = ""
    if (match(line, /\[[^]]*\]/)) {
      options = substr(line, RSTART, RLENGTH) " "
      line = substr(line, 1, RSTART - 1) " " substr(line, RSTART + RLENGTH)
    }
    count = split(line, words, /[[:space:]]+/)
    first = words[1] == "" ? 2 : 1
    if (count < first + 3) exit 1
    print "deb " options words[first + 1] " " suite " main"
    found = 1
  }
  next
}

# deb822: stanzas end at an empty line; a comment line belongs to none; a field goes on over indented lines.
/^#/ { next }
/^[[:space:]]*$/ { inside = 0; next }
!inside { inside = 1; stanza += 1; skip = 0 }
stanza == number {
  if ($0 !~ /^[[:space:]]/) {
    name = tolower($0)
    sub(/:.*/, "", name)
    skip = name == "suites" || name == "components" || name == "types" || name == "enabled"
    if (name == "suites") { print "Types: deb"; print "Suites: " suite; print "Components: main"; found = 1 }
  }
  if (!skip) print
}

END { if (!found) exit 1 }
