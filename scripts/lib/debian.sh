# shellcheck shell=bash
# Debian's side of setup: packages, the backports source, guards. Sourced by scripts/setup, needs its `run` and `fail`.

# SEV-SNP guests need QEMU 9.1; Debian 12 itself has 7.2.
qemu_version_min=1:9.1
qemu_packages=(qemu-system-x86 qemu-utils qemu-system-data seabios)
base_packages=(
  nftables conntrack iproute2 mmdebstrap squashfs-tools erofs-utils cryptsetup-bin openssh-client openssh-server openssl
  curl ca-certificates git xz-utils cpio kmod zstd apt-utils util-linux bind9-dnsutils bubblewrap systemd-container
  chromium jq nginx-light nsd pebble dnsperf swtpm skopeo cargo rustc gcc libc6-dev pkg-config nix-bin busybox-static age
  postgresql pgbouncer libfaketime fonts-dejavu-core patchelf
)

policy=/usr/sbin/policy-rc.d
policy_saved=$policy.strongroom-saved
policy_mark='# strongroom setup: no service starts while packages are installed'
suites_format='$(ORIGIN)|$(LABEL)|$(RELEASE)|$(COMPONENT)|$(SOURCESENTRY)'

# Names of the given packages that are not installed.
missing_packages() {
  local installed package
  installed=" $(dpkg-query --show --showformat '${db:Status-Abbrev}${Package} ' "$@" 2>/dev/null || true)"
  for package in "$@"; do
    [[ $installed == *" ii $package "* || $installed == *" hi $package "* ]] || echo "$package"
  done
}

qemu_is_recent() {
  local version
  version=$(dpkg-query --show --showformat '${Version}' qemu-system-x86 2>/dev/null) || return 1
  dpkg --compare-versions "$version" ge "$qemu_version_min"
}

apt_get() {
  DEBIAN_FRONTEND=noninteractive APT_LISTCHANGES_FRONTEND=none NEEDRESTART_SUSPEND=1 apt-get --quiet --yes \
    --option DPkg::Lock::Timeout=300 --option Acquire::Retries=3 --option Acquire::http::Timeout=60 \
    --option Dpkg::Options::=--force-confold --no-install-recommends "$@"
}

# Debian's packages start their service when they are installed; ours must not be left listening.
guard_services() {
  if [[ -e $policy_saved ]]; then mv --force "$policy_saved" "$policy"; fi
  if [[ -e $policy ]] && ! grep --quiet --fixed-strings "$policy_mark" "$policy"; then mv "$policy" "$policy_saved"; fi
  printf '#!/bin/sh\n%s\nexit 101\n' "$policy_mark" > "$policy"
  chmod 755 "$policy"
}

unguard_services() {
  if [[ -e $policy ]] && grep --quiet --fixed-strings "$policy_mark" "$policy"; then rm "$policy"; fi
  if [[ -e $policy_saved ]]; then mv "$policy_saved" "$policy"; fi
}

# A server that only we brought must not come up at the next boot either.
disable_ssh_server() {
  if command -v systemctl > /dev/null; then
    systemctl disable ssh.service ssh.socket
  else
    rm -f /etc/systemd/system/multi-user.target.wants/ssh.service /etc/systemd/system/sshd.service
  fi
  if [[ -e /etc/init.d/ssh ]] && command -v update-rc.d > /dev/null; then update-rc.d ssh disable; fi
}

# Lines of suites_format, one for each source that apt knows. Empty before the first apt-get update.
apt_suites() {
  apt-get indextargets --format "$suites_format" 'Created-By: Packages'
}

# Writes a source for CODENAME-backports beside the entry of Debian's main archive, with the same address, keyring and
# options, whichever they are. Does nothing where such a source is there already.
add_backports() {
  local codename=$1 suites entry file number format target
  suites=$(apt_suites)
  if grep --quiet "|$codename-backports|main|" <<< "$suites"; then return; fi
  entry=$(awk -F '|' -v codename="$codename" '
    $4 != "main" || ($3 != codename && $3 != "stable" && $3 != "oldstable" && $3 != "oldoldstable") { next }
    $1 == "Debian" && $2 == "Debian" { exact = exact ? exact : $5 }
    { other = other ? other : $5 }
    END { print exact ? exact : other }' <<< "$suites")
  if [[ -z $entry ]]; then
    echo "no apt source of this machine is Debian's $codename main archive" >&2
    return 1
  fi
  file=${entry%:*}
  number=${entry##*:}
  case $file in
    *.sources) format=sources ;;
    *) format=list ;;
  esac
  target=/etc/apt/sources.list.d/strongroom-backports.$format
  awk -f "$STRONGROOM_ROOT/scripts/lib/apt-entry.awk" -v number="$number" -v format="$format" \
    -v suite="$codename-backports" "$file" > "$target.partial"
  chmod 644 "$target.partial"
  mv "$target.partial" "$target"
}

install_qemu() {
  local codename candidate
  codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  candidate=$(apt-cache policy qemu-system-x86 | sed -n 's/^ *Candidate: //p')
  if dpkg --compare-versions "${candidate:-0}" ge "$qemu_version_min"; then
    apt_get install "${qemu_packages[@]}"
    return
  fi
  add_backports "$codename"
  apt_get update
  apt_get install --target-release "$codename-backports" "${qemu_packages[@]}"
}

# Benchmarks and tests start nginx, NSD, PostgreSQL and PgBouncer themselves, with a configuration of theirs.
disable_service() {
  local name=$1
  if command -v systemctl > /dev/null; then
    systemctl disable "$name.service"
  else
    rm -f "/etc/systemd/system/multi-user.target.wants/$name.service"
  fi
  if [[ -e /etc/init.d/$name ]] && command -v update-rc.d > /dev/null; then update-rc.d "$name" disable; fi
}

# Everything that Debian gives. Does nothing, in milliseconds, when nothing is missing.
install_debian_packages() {
  local -a missing
  local need_qemu='' had_ssh_server=1 had_nginx=1 had_nsd=1 had_postgresql=1 had_pgbouncer=1
  mapfile -t missing < <(missing_packages "${base_packages[@]}")
  if ! command -v npm > /dev/null; then missing+=(npm); fi
  if [[ -n $(missing_packages "${qemu_packages[@]}") ]] || ! qemu_is_recent; then need_qemu=1; fi
  if [[ ${#missing[@]} -eq 0 && -z $need_qemu ]]; then return; fi
  if [[ $(id -u) -ne 0 ]]; then fail "run as root: missing ${missing[*]} ${need_qemu:+QEMU $qemu_version_min}"; fi

  if [[ -n $(missing_packages openssh-server) ]]; then had_ssh_server=''; fi
  if [[ -n $(missing_packages nginx-common) ]]; then had_nginx=''; fi
  if [[ -n $(missing_packages nsd) ]]; then had_nsd=''; fi
  if [[ -n $(missing_packages postgresql-common) ]]; then had_postgresql=''; fi
  if [[ -n $(missing_packages pgbouncer) ]]; then had_pgbouncer=''; fi
  trap unguard_services EXIT
  guard_services
  run 'package lists' apt_get update
  if [[ ${#missing[@]} -gt 0 ]]; then run "packages: ${missing[*]}" apt_get install "${missing[@]}"; fi
  if [[ -z $had_ssh_server ]]; then run 'SSH server stays off' disable_ssh_server; fi
  if [[ -z $had_nginx ]]; then run 'nginx stays off' disable_service nginx; fi
  if [[ -z $had_nsd ]]; then run 'NSD stays off' disable_service nsd; fi
  if [[ -z $had_postgresql ]]; then run 'PostgreSQL stays off' disable_service postgresql; fi
  if [[ -z $had_pgbouncer ]]; then run 'PgBouncer stays off' disable_service pgbouncer; fi
  if [[ -n $need_qemu ]]; then run "QEMU $qemu_version_min or later" install_qemu; fi
  unguard_services
  trap - EXIT
}
