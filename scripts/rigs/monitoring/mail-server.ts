// A mail server that keeps what it is sent: SMTP with STARTTLS, with TLS at once, or without any TLS. Effects: a port
// of 127.0.0.1.

import { createServer, type Socket } from 'node:net'
import { createServer as createTlsServer, TLSSocket } from 'node:tls'

export type MailServer = AsyncDisposable & {
  readonly port: number
  /** Commands of clients, in order. */
  readonly commands: readonly string[]
  readonly mails: readonly string[]
}

type Options = {
  readonly kind: 'starttls' | 'tls' | 'plain'
  readonly pair: { readonly key: string; readonly cert: string }
  /** The answer to AUTH. Default: it is accepted. */
  readonly authAnswer?: string
}

export async function startMailServer({ kind, pair, authAnswer = '235 ok' }: Options): Promise<MailServer> {
  const commands: string[] = []
  const mails: string[] = []
  const open = new Set<Socket>()

  const talk = (socket: Socket, isTls: boolean) => {
    let text = ''
    let mail: string[] | null = null
    const say = (line: string) => socket.write(`${line}\r\n`)
    const take = (line: string): boolean => {
      if (mail !== null) {
        if (line !== '.') mail.push(line.replace(/^\./, ''))
        else {
          mails.push(mail.join('\n'))
          mail = null
          say('250 ok')
        }
        return true
      }
      commands.push(line)
      const [word = ''] = line.split(' ')
      if (word === 'STARTTLS' && kind === 'starttls') {
        say('220 go')
        socket.removeAllListeners('data')
        talk(new TLSSocket(socket, { isServer: true, ...pair }), true)
        return false
      }
      if (word === 'DATA') {
        mail = []
        say('354 go')
      } else if (word === 'EHLO') {
        say('250-mail.example')
        say(isTls ? '250 AUTH PLAIN' : kind === 'starttls' ? '250 STARTTLS' : '250 SIZE')
      } else say(ANSWERS[word] ?? (word === 'AUTH' ? authAnswer : '250 ok'))
      return true
    }
    socket.on('error', () => {})
    socket.on('data', chunk => {
      text += String(chunk)
      for (let at = text.indexOf('\r\n'); at >= 0; at = text.indexOf('\r\n')) {
        const line = text.slice(0, at)
        text = text.slice(at + 2)
        if (!take(line)) return
      }
    })
  }
  const greet = (socket: Socket) => {
    open.add(socket)
    socket.on('close', () => open.delete(socket))
    socket.write('220 mail.example ESMTP\r\n')
    talk(socket, kind === 'tls')
  }
  const server = kind === 'tls' ? createTlsServer(pair, greet) : createServer(greet)
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  return {
    port: typeof address === 'object' && address !== null ? address.port : 0,
    commands,
    mails,
    [Symbol.asyncDispose]: async () => {
      for (const socket of open) socket.destroy()
      await new Promise(resolve => server.close(resolve))
    },
  }
}

const ANSWERS: Readonly<Record<string, string>> = { STARTTLS: '502 not implemented', QUIT: '221 bye' }
