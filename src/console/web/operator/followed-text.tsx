// Text of the operator's interface that grows while it is shown: a console, the log of a build.

import { useFollowed } from '../core/followed.ts'
import { type LoadRequest, requestStream } from '../core/request.ts'
import { noticeEnd, operatorPath } from '../core/session.ts'
import { Card, ProblemNote } from '../parts/page.tsx'
import { StreamText } from '../parts/stream-text.tsx'
import { CommandLine } from '../parts/text.tsx'

/** Shows the text. Another `of` means another text. */
export function FollowedText({
  title,
  path,
  of,
  command,
}: {
  title: string
  path: string
  of: string
  command: string
}) {
  const { text, isCut, problem, retry } = useFollowed(`${of} ${path}`, (signal, isBackground) =>
    piecesOf(path, { signal, isBackground }),
  )
  return (
    <Card title={title} wide>
      <CommandLine command={command} />
      {problem !== null && <ProblemNote problem={problem} retry={retry} />}
      <StreamText label={title} text={text} isCut={isCut} none="No output yet." />
    </Card>
  )
}

async function* piecesOf(path: string, options: LoadRequest): AsyncGenerator<string> {
  const response = await requestStream(operatorPath(path), options).catch(noticeEnd)
  const decoder = new TextDecoder()
  for await (const part of response.body ?? []) yield decoder.decode(part, { stream: true })
}
