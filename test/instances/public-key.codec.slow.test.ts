// OpenSSH public keys: what is let in, how it is normalized, and that ssh-keygen agrees.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { Fault, messageOf } from '../../src/base/fault.ts'
import { parsePublicKey } from '../../src/instances/public-key.codec.ts'

const KINDS = {
  'ssh-ed25519': ['-t', 'ed25519'],
  'ssh-rsa 1024': ['-t', 'rsa', '-b', '1024'],
  'ssh-rsa 2048': ['-t', 'rsa', '-b', '2048'],
  'ssh-rsa 3072': ['-t', 'rsa', '-b', '3072'],
  'ecdsa-sha2-nistp256': ['-t', 'ecdsa', '-b', '256'],
  'ecdsa-sha2-nistp384': ['-t', 'ecdsa', '-b', '384'],
  'ecdsa-sha2-nistp521': ['-t', 'ecdsa', '-b', '521'],
} as const satisfies Record<string, readonly string[]>

const directory = mkdtempSync(join(tmpdir(), 'strongroom-keys-'))
const pathOf = (kind: string) => join(directory, kind.replace(' ', '-'))
/** Real key lines, `type base64 comment`, by kind. */
const real: Record<string, string> = {}

beforeAll(() => {
  for (const [kind, flags] of Object.entries(KINDS)) {
    const made = Bun.spawnSync(['ssh-keygen', '-q', ...flags, '-N', '', '-C', 'me@host', '-f', pathOf(kind)])
    if (made.exitCode !== 0) throw new Error(made.stderr.toString())
    real[kind] = readFileSync(`${pathOf(kind)}.pub`, 'utf8').trim()
  }
})
afterAll(() => rmSync(directory, { recursive: true, force: true }))

function line(kind: keyof typeof KINDS): string {
  return real[kind] ?? ''
}

/** The refusal, or `accepted`. */
function verdict(text: string): string {
  try {
    parsePublicKey(text)
    return 'accepted'
  } catch (error) {
    expect(error).toBeInstanceOf(Fault)
    expect([error instanceof Fault && error.code, error instanceof Fault && error.param]).toEqual([
      'invalid_request',
      'public_key',
    ])
    return messageOf(error).replace('public_key ', '')
  }
}

async function sshKeygenAccepts(text: string): Promise<boolean> {
  const path = join(directory, `check-${Bun.hash(text)}.pub`)
  await Bun.write(path, text)
  const child = Bun.spawn(['ssh-keygen', '-l', '-f', path], { stdout: 'ignore', stderr: 'ignore' })
  return (await child.exited) === 0
}

// Wire form (RFC 4251 5).
function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32BE(value)
  return bytes
}
const string = (content: Uint8Array | string) => Buffer.concat([u32(Buffer.from(content).length), Buffer.from(content)])
function mpint(value: bigint): Buffer {
  const hex = value.toString(16)
  const bytes = Buffer.from(hex.padStart(hex.length + (hex.length % 2), '0'), 'hex')
  return string((bytes[0] ?? 0) >= 0x80 ? Buffer.concat([Buffer.of(0), bytes]) : bytes)
}
const keyLine = (type: string, ...parts: Uint8Array[]) =>
  `${type} ${Buffer.concat([string(type), ...parts]).toString('base64')}`
const blobOf = (text: string) => Buffer.from(text.split(' ')[1] ?? '', 'base64')
const pointOf = (text: string, sizeBytes: number) => blobOf(text).subarray(-(1 + 2 * sizeBytes))
const skEd25519 = () => keyLine('sk-ssh-ed25519@openssh.com', string(Buffer.alloc(32, 7)), string('ssh:'))
const skEcdsa = () =>
  keyLine(
    'sk-ecdsa-sha2-nistp256@openssh.com',
    string('nistp256'),
    string(pointOf(line('ecdsa-sha2-nistp256'), 32)),
    string('ssh:'),
  )

describe('accepted', () => {
  for (const kind of Object.keys(KINDS)) {
    // Goal: a key as ssh-keygen writes it comes through unchanged.
    test(kind, async () => {
      expect(parsePublicKey(real[kind] ?? '')).toBe(real[kind] ?? 'missing')
      expect(await sshKeygenAccepts(real[kind] ?? '')).toBe(true)
    })
  }

  // Goal: security keys are taken as sshd takes them, whatever their application.
  test('sk keys', async () => {
    const other = keyLine('sk-ssh-ed25519@openssh.com', string(Buffer.alloc(32, 7)), string('ssh:work laptop'))
    for (const text of [skEd25519(), skEcdsa(), other]) {
      expect(parsePublicKey(text)).toBe(text)
      expect(await sshKeygenAccepts(text)).toBe(true)
    }
  })

  // Goal: whitespace around and between the parts is normalized; the comment's words stay.
  test('normal form', () => {
    const key = line('ssh-ed25519').split(' ').slice(0, 2).join(' ')
    const normal = {
      [key]: key,
      [`${key}\n`]: key,
      [`\r\n\t ${key} \r\n`]: key,
      [key.replace(' ', ' \t ')]: key,
      [`${key}   two\twords  `]: `${key} two words`,
      [`${key} Zoë's 🔑`]: `${key} Zoë's 🔑`,
      [`${key} command="x" ssh-rsa AAAA`]: `${key} command="x" ssh-rsa AAAA`,
    }
    for (const [text, expected] of Object.entries(normal)) {
      expect(parsePublicKey(text)).toBe(expected)
      expect(parsePublicKey(expected)).toBe(expected)
    }
  })
})

const unknownType = /^does not begin with a known key type \(ssh-ed25519, .*\); options are not allowed$/
const control = 'has control characters'
const REFUSED: Record<string, readonly [text: () => string, why: string | RegExp]> = {
  'an empty text': [() => '', 'is empty'],
  'only whitespace': [() => ' \r\n\t', 'is empty'],
  'a word': [() => 'hello', unknownType],
  'the type alone': [() => 'ssh-ed25519', 'is not canonical base64 after the key type'],
  'no type': [() => line('ssh-ed25519').split(' ')[1] ?? '', unknownType],
  'the type in upper case': [() => line('ssh-ed25519').replace('ssh-ed25519', 'SSH-ED25519'), unknownType],
  'a name of Object': [() => 'constructor AAAA', unknownType],
  __proto__: [() => '__proto__ AAAA', unknownType],
  'options before the key': [() => `command="/bin/sh" ${line('ssh-ed25519')}`, unknownType],
  'an option without a value': [() => `no-pty ${line('ssh-ed25519')}`, unknownType],
  'an environment option': [() => `environment="LD_PRELOAD=/x" ${line('ssh-ed25519')}`, unknownType],
  'a known_hosts line': [() => `host.example ${line('ssh-ed25519')}`, unknownType],
  'a comment sign before it': [() => `# ${line('ssh-ed25519')}`, unknownType],
  'two keys': [() => `${line('ssh-ed25519')}\n${line('ecdsa-sha2-nistp256')}`, 'must be one key on one line'],
  'a second line with options': [
    () => `${line('ssh-ed25519')}\ncommand="x" ssh-rsa AAAA`,
    'must be one key on one line',
  ],
  'a carriage return inside': [() => line('ssh-ed25519').replace(' me', '\rme'), 'must be one key on one line'],
  'a NUL': [() => `${line('ssh-ed25519')}\0`, control],
  'an escape sequence': [() => `${line('ssh-ed25519')} \x1b[31m`, control],
  'a C1 control': [() => `${line('ssh-ed25519')} \x85`, control],
  'a Unicode line break': [() => `${line('ssh-ed25519')} \u2028`, control],
  'a lone surrogate': [() => `${line('ssh-ed25519')} \ud800`, control],
  'a no-break space for the space': [() => line('ssh-ed25519').replace(' ', '\u00a0'), unknownType],
  'a text too long': [() => `${line('ssh-ed25519')} ${'x'.repeat(8_192)}`, 'is longer than 8192 characters'],
  'no padding': [() => skEd25519().replace(/=+$/, ''), 'is not canonical base64 after the key type'],
  base64url: [
    () => keyLine('ssh-ed25519', string(Buffer.alloc(32, 0xff))).replaceAll('/', '_'),
    'is not canonical base64 after the key type',
  ],
  'loose bits in the last base64 character': [
    () => loosenLastBits(skEd25519()),
    'is not canonical base64 after the key type',
  ],
  'a type that is not the one inside': [
    () => line('ssh-ed25519').replace('ssh-ed25519', 'ssh-rsa'),
    'names one type and holds another',
  ],
  'ed25519 under a curve type': [
    () => line('ssh-ed25519').replace('ssh-ed25519', 'ecdsa-sha2-nistp256'),
    'names one type and holds another',
  ],
  'bytes after the key': [
    () => keyLine('ssh-ed25519', string(Buffer.alloc(32)), Buffer.of(0)),
    'has bytes after the key',
  ],
  'an application after a plain key': [
    () => keyLine('ssh-ed25519', string(Buffer.alloc(32)), string('ssh:')),
    'has bytes after the key',
  ],
  'a blob cut short': [
    () => `ssh-ed25519 ${blobOf(line('ssh-ed25519')).subarray(0, -3).toString('base64')}`,
    'is cut short',
  ],
  'a length beyond the blob': [
    () => `ssh-ed25519 ${Buffer.concat([string('ssh-ed25519'), u32(0xffffffff), Buffer.alloc(32)]).toString('base64')}`,
    'is cut short',
  ],
  'an empty blob': [() => 'ssh-ed25519 ', 'is not canonical base64 after the key type'],
  'a blob of one byte': [() => 'ssh-ed25519 AA==', 'is cut short'],
  'a type that is not UTF-8': [
    () => `ssh-ed25519 ${string(Buffer.of(0xff)).toString('base64')}`,
    'has text that is not UTF-8',
  ],
  'an Ed25519 point of 31 bytes': [
    () => keyLine('ssh-ed25519', string(Buffer.alloc(31))),
    'has an Ed25519 point that is not 32 bytes',
  ],
  'an Ed25519 point of 33 bytes': [
    () => keyLine('ssh-ed25519', string(Buffer.alloc(33))),
    'has an Ed25519 point that is not 32 bytes',
  ],
  'RSA of 1023 bits': [
    () => keyLine('ssh-rsa', mpint(65537n), mpint((1n << 1022n) + 1n)),
    'is an RSA key of 1023 bits; at least 1024 are needed, 2048 or more advised',
  ],
  'RSA of 16385 bits': [
    () => keyLine('ssh-rsa', mpint(65537n), mpint((1n << 16384n) + 1n)),
    'is an RSA key of more than 16384 bits',
  ],
  'an even modulus': [() => keyLine('ssh-rsa', mpint(65537n), mpint(1n << 2047n)), 'has an even RSA modulus'],
  'exponent 1': [() => keyLine('ssh-rsa', mpint(1n), mpint((1n << 2047n) + 1n)), 'has an unusable RSA exponent'],
  'an even exponent': [
    () => keyLine('ssh-rsa', mpint(65536n), mpint((1n << 2047n) + 1n)),
    'has an unusable RSA exponent',
  ],
  'an exponent beyond the modulus': [
    () => keyLine('ssh-rsa', mpint((1n << 2048n) + 1n), mpint((1n << 2047n) + 1n)),
    'has an unusable RSA exponent',
  ],
  'exponent 0': [
    () => keyLine('ssh-rsa', string(''), mpint((1n << 2047n) + 1n)),
    'has a number that is not a canonical positive mpint',
  ],
  'a negative exponent': [
    () => keyLine('ssh-rsa', string(Buffer.of(0x81)), mpint((1n << 2047n) + 1n)),
    'has a number that is not a canonical positive mpint',
  ],
  'a padded exponent': [
    () => keyLine('ssh-rsa', string(Buffer.of(0, 1, 0, 1)), mpint((1n << 2047n) + 1n)),
    'has a number that is not a canonical positive mpint',
  ],
  'another curve inside': [
    () => keyLine('ecdsa-sha2-nistp256', string('nistp384'), string(pointOf(line('ecdsa-sha2-nistp384'), 48))),
    'names one curve and holds another',
  ],
  'a compressed point': [
    () =>
      keyLine(
        'ecdsa-sha2-nistp256',
        string('nistp256'),
        string(Buffer.concat([Buffer.of(2), pointOf(line('ecdsa-sha2-nistp256'), 32).subarray(1, 33)])),
      ),
    'has a curve point that is not uncompressed',
  ],
  'the point at infinity': [
    () => keyLine('ecdsa-sha2-nistp256', string('nistp256'), string(Buffer.of(0))),
    'has a curve point that is not uncompressed',
  ],
  'a point off P-256': [() => offCurve('ecdsa-sha2-nistp256', 'nistp256', 32), 'has a point that is not on its curve'],
  'a point off P-384': [() => offCurve('ecdsa-sha2-nistp384', 'nistp384', 48), 'has a point that is not on its curve'],
  'a point off P-521': [() => offCurve('ecdsa-sha2-nistp521', 'nistp521', 66), 'has a point that is not on its curve'],
  'a point of zeros': [
    () => keyLine('ecdsa-sha2-nistp256', string('nistp256'), string(Buffer.concat([Buffer.of(4), Buffer.alloc(64)]))),
    'has a point that is not on its curve',
  ],
  'an sk key without application': [
    () => keyLine('sk-ssh-ed25519@openssh.com', string(Buffer.alloc(32))),
    'is cut short',
  ],
  'an sk key with a NUL in its application': [
    () => keyLine('sk-ssh-ed25519@openssh.com', string(Buffer.alloc(32)), string('ssh:\0x')),
    'has a NUL in its application',
  ],
  'a DSA key': [() => keyLine('ssh-dss', mpint(5n)), 'is a DSA key, which is no longer safe; make an ssh-ed25519 key'],
  'a certificate': [
    () => keyLine('ssh-ed25519-cert-v01@openssh.com', string('x')),
    'is a certificate; send the plain public key',
  ],
  'an sk certificate': [
    () => keyLine('sk-ssh-ed25519-cert-v01@openssh.com', string('x')),
    'is a certificate; send the plain public key',
  ],
  'a private key': [
    () => readFileSync(pathOf('ssh-ed25519'), 'utf8'),
    'is a private key; treat it as disclosed, make a new pair, and send the content of the .pub file',
  ],
  'a private key on one line': [
    () => readFileSync(pathOf('ssh-ed25519'), 'utf8').replaceAll('\n', ' '),
    /^is a private key/,
  ],
  'a PEM private key': [() => '-----BEGIN RSA PRIVATE KEY-----\nMII', /^is a private key/],
  'an encrypted private key': [() => '-----BEGIN ENCRYPTED PRIVATE KEY-----\nMII', /^is a private key/],
  'a PuTTY private key': [() => 'PuTTY-User-Key-File-3: ssh-ed25519', /^is a private key/],
  'a PEM public key': [
    () => '-----BEGIN PUBLIC KEY-----\nMII',
    'is in another format; `ssh-keygen -i` converts it to OpenSSH',
  ],
  'an RFC 4716 key': [
    () => '---- BEGIN SSH2 PUBLIC KEY ----\nAAAA',
    'is in another format; `ssh-keygen -i` converts it to OpenSSH',
  ],
}

/** The same bytes to a lenient decoder: the last character before one `=` has two bits that belong to no byte. */
function loosenLastBits(text: string): string {
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/'
  const last = text.at(-2) ?? ''
  if (!/[^=]=$/.test(text)) throw new Error('this test needs a blob with one = at its end')
  return `${text.slice(0, -2)}${alphabet[alphabet.indexOf(last) + 1]}=`
}

function offCurve(
  type: 'ecdsa-sha2-nistp256' | 'ecdsa-sha2-nistp384' | 'ecdsa-sha2-nistp521',
  curve: string,
  sizeBytes: number,
): string {
  const point = Buffer.from(pointOf(line(type), sizeBytes))
  point[point.length - 1] = (point[point.length - 1] ?? 0) ^ 1
  return keyLine(type, string(curve), string(point))
}

describe('refused', () => {
  for (const [what, [text, why]] of Object.entries(REFUSED)) {
    // Goal: it is refused for the reason that it should be, with param public_key, and without repeating the input.
    test(what, () => {
      const said = verdict(text())
      if (typeof why === 'string') expect(said).toBe(why)
      else expect(said).toMatch(why)
      const [, blob = ''] = text().split(/\s+/)
      if (blob.length > 20) expect(said).not.toContain(blob.slice(0, 20))
    })
  }

  // Goal: real certificates and DSA keys are refused although ssh-keygen can read them.
  test('a real certificate', async () => {
    const signed = Bun.spawnSync([
      'ssh-keygen',
      '-q',
      '-s',
      pathOf('ecdsa-sha2-nistp256'),
      '-I',
      'id',
      '-n',
      'root',
      `${pathOf('ssh-ed25519')}.pub`,
    ])
    expect(signed.exitCode).toBe(0)
    const certificate = readFileSync(`${pathOf('ssh-ed25519')}-cert.pub`, 'utf8')
    expect(await sshKeygenAccepts(certificate)).toBe(true)
    expect(verdict(certificate)).toBe('is a certificate; send the plain public key')
  })
})

describe('against ssh-keygen', () => {
  // Goal: whatever we accept, ssh-keygen accepts: no mutation of a real key gets past us that sshd would not read.
  test('mutations of real keys', async () => {
    const kinds = Object.keys(KINDS) as (keyof typeof KINDS)[]
    let accepted = 0
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...kinds),
        fc.nat(),
        fc.integer({ min: 1, max: 255 }),
        fc.constantFrom('flip', 'cut', 'grow'),
        async (kind, at, mask, how) => {
          const blob = Buffer.from(blobOf(line(kind)))
          const place = at % blob.length
          blob[place] = (blob[place] ?? 0) ^ (how === 'flip' ? mask : 0)
          const bytes =
            how === 'cut' ? blob.subarray(0, place) : how === 'grow' ? Buffer.concat([blob, Buffer.of(mask)]) : blob
          const text = `${kind.split(' ')[0]} ${bytes.toString('base64')}`
          if (verdict(text) !== 'accepted') return
          accepted += 1
          expect([text, await sshKeygenAccepts(text)]).toEqual([text, true])
        },
      ),
      { numRuns: 400, seed: 20261120 },
    )
    expect(accepted).toBeGreaterThan(10)
  })

  // Goal: no text at all makes the parser do anything but accept or refuse, and what it accepts is in normal form.
  test('any text', () => {
    const piece = fc.oneof(
      fc.string({ unit: 'binary' }),
      fc.constantFrom('ssh-ed25519', 'ssh-rsa', ' ', '\n', 'AAAA', '='),
      fc.base64String(),
    )
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 8 }), pieces => {
        expect(verdict(pieces.join(''))).not.toBe('accepted')
      }),
      { numRuns: 2_000, seed: 20261120 },
    )
    const space = fc.array(fc.constantFrom(' ', '\t'), { minLength: 1, maxLength: 4 }).map(spaces => spaces.join(''))
    fc.assert(
      fc.property(space, space, fc.constantFrom(...Object.keys(KINDS)), (before, between, kind) => {
        const text = real[kind] ?? ''
        const normal = parsePublicKey(`${before}${text.replaceAll(' ', between)}${before}\n`)
        expect(normal).toBe(text)
      }),
    )
  })
})
