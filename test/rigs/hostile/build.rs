// A build script that goes for everything that is not its own, and says what it got: `OPEN …` for what it must not have.

use std::fs;
use std::io::Write;
use std::net::{TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

extern "C" {
    fn setuid(uid: u32) -> i32;
    fn unshare(flags: i32) -> i32;
    fn mknod(path: *const u8, mode: u32, dev: u64) -> i32;
    fn mount(source: *const u8, target: *const u8, kind: *const u8, flags: u64, data: *const u8) -> i32;
    fn socket(domain: i32, kind: i32, protocol: i32) -> i32;
    fn kill(pid: i32, signal: i32) -> i32;
    fn getuid() -> u32;
}

fn main() {
    let mut open: Vec<String> = Vec::new();
    for path in [
        "/dev/sev-guest", "/dev/tpm0", "/dev/tpmrm0", "/dev/mem", "/dev/kmsg", "/dev/kvm", "/dev/vda", "/dev/dm-0", "/dev/loop0",
        "/dev/fuse", "/dev/net/tun", "/dev/hvc0", "/dev/console", "/dev/ttyS0", "/dev/pts/0", "/dev/ptmx", "/dev/vport0p1",
        "/dev/virtio-ports", "/sys", "/sys/kernel/config/tsm/report", "/sys/fs/cgroup", "/run", "/run/strongroom", "/root", "/home", "/var",
        "/var/lib/strongroom", "/boot", "/etc/shadow", "/etc/ssh", "/etc/machine-id", "/proc/kcore", "/proc/1/root/etc/shadow", "/build/git",
    ] {
        if fs::File::open(path).is_ok() || fs::read_dir(path).is_ok() {
            open.push(format!("path {path}"));
        }
    }
    let mut devices: Vec<String> = fs::read_dir("/dev").unwrap().map(|one| one.unwrap().file_name().into_string().unwrap()).collect();
    devices.sort();
    eprintln!("DEVICES {}", devices.join(" "));

    // Processes: nothing but this build's own, and no environment but its own.
    let mut commands = Vec::new();
    for entry in fs::read_dir("/proc").unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.parse::<u32>().is_err() {
            continue;
        }
        commands.push(fs::read_to_string(format!("/proc/{name}/comm")).unwrap_or_default().trim().to_string());
        for file in ["environ", "cmdline"] {
            let bytes = fs::read(format!("/proc/{name}/{file}")).unwrap_or_default();
            if String::from_utf8_lossy(&bytes).contains("agent-secret") {
                open.push(format!("{file} of {name}"));
            }
        }
    }
    commands.sort();
    commands.dedup();
    eprintln!("PROCESSES {}", commands.join(" "));
    for (name, value) in std::env::vars() {
        if name.to_lowercase().contains("proxy") || value.contains("agent-secret") {
            open.push(format!("environment {name}"));
        }
    }

    // Network: no interface but one that leads nowhere, and nobody on it.
    let interfaces = fs::read_to_string("/proc/net/dev").unwrap();
    eprintln!("INTERFACES {}", interfaces.lines().filter_map(|line| line.split_once(':')).map(|one| one.0.trim()).collect::<Vec<_>>().join(" "));
    let port: u16 = include_str!("port").trim().parse().unwrap();
    for target in [format!("127.0.0.1:{port}"), format!("[::1]:{port}"), "192.0.2.1:443".to_string()] {
        if TcpStream::connect_timeout(&target.parse().unwrap(), Duration::from_millis(500)).is_ok() {
            open.push(format!("tcp {target}"));
        }
    }
    if UdpSocket::bind("0.0.0.0:0").and_then(|one| one.send_to(b"x", "192.0.2.1:53")).is_ok() {
        open.push("udp".to_string());
    }

    unsafe {
        // AF_VSOCK, AF_PACKET and netlink's audit are the ways round a network namespace.
        for (name, domain, kind) in [("packet", 17, 3), ("raw", 2, 3)] {
            if socket(domain, kind, 0) >= 0 {
                open.push(format!("{name} socket"));
            }
        }
        if setuid(0) == 0 && getuid() == 0 {
            open.push("uid 0".to_string());
        }
        for (name, flag) in [("user", 0x10000000), ("mount", 0x20000), ("network", 0x40000000)] {
            if unshare(flag) == 0 {
                open.push(format!("{name} namespace"));
            }
        }
        if mknod(b"/tmp/sev\0".as_ptr(), 0o020666, 0x0a7c) == 0 {
            open.push("mknod".to_string());
        }
        if mount(b"sysfs\0".as_ptr(), b"/tmp\0".as_ptr(), b"sysfs\0".as_ptr(), 0, std::ptr::null()) == 0 {
            open.push("mount".to_string());
        }
        for pid in 2..100_000 {
            // The build's own are this script, cargo, and the first process of the namespace.
            if kill(pid, 0) == 0 {
                let uid = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
                if !uid.contains("\t61002\t61002") {
                    open.push(format!("signal to {pid}"));
                }
            }
        }
    }
    for path in ["/usr/bin/cc", "/etc/passwd", "/new", "/usr/new", "/bin/new", "/dev/new", "/opt/rust/new", "/build/new"] {
        if fs::OpenOptions::new().append(true).create(true).open(path).is_ok() {
            open.push(format!("write {path}"));
        }
    }
    for path in ["/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/self/oom_score_adj_", "/proc/sys/kernel/hostname"] {
        if fs::OpenOptions::new().write(true).open(path).and_then(|mut one| one.write_all(b"x")).is_ok() {
            open.push(format!("write {path}"));
        }
    }
    let shell = "/tmp/shell";
    let _ = fs::copy("/usr/bin/id", shell).and_then(|_| fs::set_permissions(shell, fs::Permissions::from_mode(0o4755)));

    for line in fs::read_to_string("/proc/self/status").unwrap().lines() {
        if line.starts_with("Cap") || line.starts_with("NoNewPrivs") || line.starts_with("Uid") || line.starts_with("Gid") || line.starts_with("Groups") {
            eprintln!("STATUS {}", line.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }
    for one in open {
        eprintln!("OPEN {one}");
    }
    eprintln!("PROBED");
    std::process::exit(1);
}
