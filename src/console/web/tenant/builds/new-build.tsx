// Submits a build of a repository or an archive, with a nonce that this page generates.

import { useSignal } from '@preact/signals'
import { useId } from 'preact/hooks'
import { toHex } from '../../../../base/bytes.ts'
import type { BuildRequest } from '../../../../contract/http/build.ts'
import type { BuildAccepted } from '../../../../contract/http/build-api.ts'
import type { Toolchain, ToolchainOptions } from '../../../../contract/http/build-options.ts'
import { fieldsOfOptions, optionsOfFields } from '../../../../contract/http/option-words.ts'
import { useAction } from '../../core/action.ts'
import { commandOf } from '../../core/command.ts'
import { pathTo } from '../../core/path.ts'
import type { RequestProblem } from '../../core/request.ts'
import { go } from '../../core/router.ts'
import { ActionDialog } from '../../parts/dialog.tsx'
import { Choice, TextField, Tick } from '../../parts/field.tsx'
import { askService } from '../services.ts'
import { remember } from './known-builds.ts'
import { commandOptions } from './verify-command.ts'

const nonceBytes = 16

/** Typed values; empty ones are omitted from the request. */
type Fields = {
  readonly url: string
  readonly ref: string
  /** Takes precedence over the repository. */
  readonly archive: File | null
  readonly projectDir: string
  readonly toolchain: Toolchain | ''
  readonly package: string
  /** Separated by commas or spaces. */
  readonly features: string
  readonly reproduce: boolean
}

export function NewBuild({ close }: { close: () => void }) {
  const fields = useSignal<Fields>({
    url: '',
    ref: '',
    archive: null,
    projectDir: '',
    toolchain: '',
    package: '',
    features: '',
    reproduce: false,
  })
  const submit = useAction(async () => go(pathTo`/tenant/builds/${await submitted(fields.value)}`))
  const { url, ref, archive, projectDir, toolchain, reproduce } = fields.value
  const options = optionsOf(fields.value)
  const command = commandOf(['build', 'submit', archive?.name ?? (url || 'URL')], {
    ref: ref || null,
    'project-dir': projectDir || null,
    toolchain: toolchain || null,
    ...commandOptions(options),
    reproduce,
  })
  return (
    <ActionDialog
      title="New build"
      action={submit}
      verb="Submit"
      busyWord="Submitting …"
      command={command}
      isReady={archive !== null || url !== ''}
      close={close}
    >
      <BuildFields fields={fields.value} change={value => (fields.value = value)} problem={submit.problem} />
    </ActionDialog>
  )
}

/** Submits the build and returns its id. */
async function submitted(fields: Fields): Promise<string> {
  const { url, ref, archive, projectDir, toolchain, reproduce } = fields
  const options = optionsOf(fields)
  const nonce = toHex(crypto.getRandomValues(new Uint8Array(nonceBytes)))
  const source =
    archive === null
      ? { repo_url: url, ...(ref === '' ? {} : { repo_ref: ref }) }
      : { source_data: await base64Of(archive), source_name: archive.name }
  const body: BuildRequest = {
    nonce,
    ...source,
    ...(projectDir === '' ? {} : { project_dir: projectDir }),
    ...(toolchain === '' ? {} : { toolchain }),
    ...fieldsOfOptions(options),
    ...(reproduce ? { reproduce } : {}),
  }
  const { job_id: id } = await askService<BuildAccepted>('builds', '/build', { method: 'POST', body })
  remember({
    ...{ id, nonce, reproduce, atMs: Date.now() },
    source: archive === null ? { kind: 'git', url, ref: ref || null } : { kind: 'archive', name: archive.name },
    projectDir: projectDir || null,
    toolchain: toolchain || null,
    options,
  })
  return id
}

/** Returns the options for which the page has a field. */
function optionsOf({ package: pkg, features }: Fields): ToolchainOptions | null {
  const names = features.split(/[\s,]+/).filter(name => name !== '')
  const found = optionsOfFields({ ...(pkg === '' ? {} : { package: pkg }), features: [...new Set(names)] }, null)
  return 'options' in found ? found.options : null
}

type BuildFieldsProps = {
  readonly fields: Fields
  readonly change: (fields: Fields) => void
  readonly problem: RequestProblem | null
}

function BuildFields({ fields, change, problem }: BuildFieldsProps) {
  const fileId = useId()
  const text = (name: 'url' | 'ref' | 'projectDir' | 'package' | 'features') => ({
    value: fields[name],
    change: (value: string) => change({ ...fields, [name]: value.trim() }),
    problem,
  })
  return (
    <>
      <TextField label="Git repository" name="repo_url" hint="An https address" inputMode="url" {...text('url')} />
      <TextField label="Branch, tag or commit" name="repo_ref" {...text('ref')} />
      <div class="field">
        <label for={fileId}>Or an archive: tar.gz, tar.xz, tar.zst, tar or zip</label>
        <input
          id={fileId}
          type="file"
          onChange={event => change({ ...fields, archive: event.currentTarget.files?.item(0) ?? null })}
        />
      </div>
      <TextField label="Directory in the source" name="project_dir" hint="The root if empty" {...text('projectDir')} />
      <Choice
        label="Toolchain"
        value={fields.toolchain}
        change={toolchain => change({ ...fields, toolchain })}
        options={[
          ['', 'detected'],
          ['cargo', 'cargo'],
          ['nix', 'nix'],
          ['go', 'go'],
          ['npm', 'npm'],
          ['pnpm', 'pnpm'],
          ['make', 'make'],
        ]}
      />
      <TextField label="Cargo package" name="package" hint="The default members if empty" {...text('package')} />
      <TextField label="Cargo features" name="features" hint="Comma-separated" {...text('features')} />
      <Tick
        label="Build twice and compare each artifact"
        value={fields.reproduce}
        change={reproduce => change({ ...fields, reproduce })}
      />
    </>
  )
}

async function base64Of(file: File): Promise<string> {
  const bytes = new Uint8Array(await file.arrayBuffer())
  const parts: string[] = []
  // Three bytes become four characters, so pieces of a multiple of three bytes need no padding between them.
  const pieceBytes = 24_576
  for (let at = 0; at < bytes.length; at += pieceBytes) {
    parts.push(btoa(String.fromCharCode(...bytes.subarray(at, at + pieceBytes))))
  }
  return parts.join('')
}
