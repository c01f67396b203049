// Completions for bash, zsh and fish, from the command tree. Pure.
//
// All three work alike: the words before the cursor that name commands are the path; the path says which commands and
// options come next, and the option before the cursor which values.

import type { CommandNode, CommandOption } from './command-tree.ts'

const name = 'strongroom'
const made = 'Made by scripts/build-package.ts from the commands of the executable.'

export function bashCompletion(tree: readonly CommandNode[]): string {
  const globals = tree[0]?.options ?? []
  const values = tree.flatMap(node => optionsOf(node, globals).flatMap(option => bashValue(node, option)))
  return `# bash completion for ${name}. ${made}

_${name}() {
  local current=\${COMP_WORDS[COMP_CWORD]} before=\${COMP_WORDS[COMP_CWORD - 1]} path=${name} word words=''
  COMPREPLY=()
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$path $word" in
${wrapped(pathsOf(tree))}) path="$path $word" ;;
    esac
  done
  case "$path $before" in
${values.join('\n')}
  esac
  case $path in
${tree.map(node => `    ${quoted(pathOf(node))}) words=${quoted(wordsOf(node, globals).join(' '))} ;;`).join('\n')}
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  case $path in
    ${tree
      .filter(node => node.takesFile)
      .map(pathOf)
      .map(quoted)
      .join(' | ')})
      mapfile -t -O "\${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$current") ;;
  esac
}

complete -F _${name} ${name}
`
}

function bashValue(node: CommandNode, { flag, value }: CommandOption): string[] {
  const at = quoted(`${pathOf(node)} ${flag}`)
  const reply = (generated: string) => `    ${at}) mapfile -t COMPREPLY < <(${generated} -- "$current"); return ;;`
  switch (value.kind) {
    case 'none':
      return []
    case 'text':
      return [`    ${at}) return ;;`]
    case 'file':
      return [reply('compgen -f')]
    case 'choices':
      return [reply(`compgen -W ${quoted(value.choices.join(' '))}`)]
  }
}

export function zshCompletion(tree: readonly CommandNode[]): string {
  const globals = tree[0]?.options ?? []
  const cases = tree.map(node => {
    const commands = node.commands.map(child => {
      const found = tree.find(({ path }) => pathOf({ path }) === `${pathOf(node)} ${child}`)
      return `      ${quoted(`${child}:${oneLine(found?.description ?? '')}`)}`
    })
    const specs = optionsOf(node, globals).map(option => `      ${quoted(zshSpec(option))}`)
    const rest = node.takesFile ? ["      '*:file:_files'"] : []
    return [
      `    ${quoted(pathOf(node))})`,
      ...(commands.length === 0 ? [] : ['      commands=(', ...commands.map(line => `  ${line}`), '      )']),
      '      specs=(',
      ...[...specs, ...rest].map(line => `  ${line}`),
      '      ) ;;',
    ].join('\n')
  })
  return `#compdef ${name}
# ${made}

_${name}() {
  local route=${name} word
  local -a commands specs
  local -i deep=0
  for word in "\${(@)words[2,CURRENT-1]}"; do
    case "$route $word" in
${wrapped(pathsOf(tree))}) route="$route $word"; (( deep = deep + 1 )) ;;
    esac
  done
  case $route in
${cases.join('\n')}
  esac
  if (( \${#commands} )) && [[ $words[CURRENT] != -* ]]; then
    _describe -t commands command commands
    return
  fi
  # What follows the path, as if it were a command of its own.
  shift deep words
  (( CURRENT = CURRENT - deep ))
  _arguments -s $specs
}

_${name} "$@"
`
}

function zshSpec({ flag, description, value }: CommandOption): string {
  const spec = `${flag}[${oneLine(description).replaceAll(/[[\]]/g, '')}]`
  switch (value.kind) {
    case 'none':
      return spec
    case 'text':
      return `${spec}:value: `
    case 'file':
      return `${spec}:file:_files`
    case 'choices':
      return `${spec}:value:(${value.choices.join(' ')})`
  }
}

export function fishCompletion(tree: readonly CommandNode[]): string {
  const globals = tree[0]?.options ?? []
  const lines = tree.flatMap(node => {
    const at = `complete -c ${name} -n '__${name}_at ${quotedFish(pathOf(node))}'`
    const commands = node.commands.map(child => {
      const found = tree.find(({ path }) => pathOf({ path }) === `${pathOf(node)} ${child}`)
      return `${at} -f -a ${child} -d ${quotedFish(oneLine(found?.description ?? ''))}`
    })
    const options = optionsOf(node, globals).map(
      ({ flag, description, value }) =>
        `${at} -l ${flag.slice(2)} -d ${quotedFish(oneLine(description))}${fishValue(value)}`,
    )
    return [...commands, ...options, ...(node.takesFile ? [`${at} -F`] : [])]
  })
  return `# fish completion for ${name}. ${made}

set -g __${name}_paths ${pathsOf(tree).map(quotedFish).join(' ')}

# Whether the commands before the cursor are these.
function __${name}_at
    set -l path ${name}
    for word in (commandline -opc)[2..-1]
        contains -- "$path $word" $__${name}_paths; and set path "$path $word"
    end
    test "$path" = "$argv"
end

complete -c ${name} -f
${lines.join('\n')}
`
}

function fishValue(value: CommandOption['value']): string {
  switch (value.kind) {
    case 'none':
      return ''
    case 'text':
      return ' -x'
    case 'file':
      return ' -r -F'
    case 'choices':
      return ` -x -a ${quotedFish(value.choices.join(' '))}`
  }
}

/** The program's own options hold for every command. */
function optionsOf(node: CommandNode, globals: readonly CommandOption[]): CommandOption[] {
  const help: CommandOption = { flag: '--help', description: 'print help', value: { kind: 'none' } }
  const inherited = node.path.length === 1 ? [] : globals.filter(({ flag }) => flag !== '--version')
  return [...node.options, ...inherited, help]
}

function wordsOf(node: CommandNode, globals: readonly CommandOption[]): string[] {
  return [...node.commands, ...optionsOf(node, globals).map(({ flag }) => flag)]
}

function pathOf({ path }: Pick<CommandNode, 'path'>): string {
  return path.join(' ')
}

/** Every path but the program's own. */
function pathsOf(tree: readonly CommandNode[]): string[] {
  return tree.slice(1).map(pathOf)
}

/** Patterns of a case, some on each line. */
function wrapped(paths: readonly string[]): string {
  return paths.map(path => `      ${quoted(path)}`).join(' | \\\n')
}

function oneLine(text: string): string {
  return text.replaceAll(/\s+/g, ' ').replaceAll(':', ',').trim()
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`
}

function quotedFish(text: string): string {
  return `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`
}
