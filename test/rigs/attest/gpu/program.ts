// NVIDIA's programs as one program: `bun program.ts URL COMMAND…` prints what the server of served.ts answers. Effects.

export {}

const [, , url = '', ...command] = process.argv
const answer = await fetch(url, { method: 'POST', body: JSON.stringify(command) })
const text = await answer.text()
if (!answer.ok) {
  process.stderr.write(text)
  process.exit(1)
}
process.stdout.write(text)
