# Completion of npud's programs for bash: commands and options as each program's --help has them, and what the daemon
# knows now. A daemon that does not answer within a second completes nothing.

_npud_ids() { # COMMAND [PATTERN]: the first column of a table of npuctl, from the daemon that the line names
	local i socket=()
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		-s | --socket) socket=(--socket "${COMP_WORDS[i + 1]}") ;;
		esac
	done
	timeout 1 npuctl "$1" --no-headers "${socket[@]}" 2>/dev/null | awk -v id="${2:-^[0-9]+$}" '$1 ~ id { print $1 }'
}

# What an option's value is: the word behind it in the help, "-x, --x FILE". False for one without a value.
_npud_value() { # OPTION PROGRAM HELP
	local kind
	kind=$(sed -nE "s/^ +(-., )?(.*[ ,])?$1(, --[a-z0-9-]+)? ([A-Z]+).*/\4/p" <<<"$3" | head -n 1)
	case $2:$1:$kind in
	*:) return 1 ;;
	npu-head:--path:*) words="auto host device alternate" ;;
	npu-head:--q8:*) words="a b auto" ;;
	npu-head:*:LAYOUT) words="blocked row-major" ;;
	npu-bench:*:SETTINGS) words="path=auto path=host path=device path=alternate threads= batch= store=on store=off socket=" ;;
	npu-hold:*:CLASS) words="realtime interactive normal batch" ;;
	*:FILE | *:PATH | *:DIR) compopt -o default ;;
	esac
}

# "usage: npu-head run MODEL", and "  evict|pin|unpin ID   give up what is resident".
_npud_commands() { # PROGRAM HELP
	{
		sed -nE "s/^(usage:)? *$1 ([a-z]+)( .*)?$/\2/p" <<<"$2"
		sed -nE 's/^  ([a-z][a-z|-]*(, [a-z]+)*) .*$/\1/p' <<<"$2" | tr '|,' '  '
	} | sort -u | tr '\n' ' '
}

_npud_argument() { # PROGRAM COMMAND: what comes behind it
	case $1:$2 in
	npuctl:kick) words=$(_npud_ids clients) ;;
	npuctl:evict | npuctl:pin | npuctl:unpin) words=$(_npud_ids heads) ;;
	npuctl:tickets) [[ $before == tickets ]] && words="show revoke move" || words=$(_npud_ids tickets) ;;
	npuctl:store)
		case $before in
		store) words="ls show verify prune compact add export import" ;;
		show | export) words=$(_npud_ids store '^[0-9a-f]+$') ;;
		*) compopt -o default ;; # models and Q4HI files
		esac
		;;
	npuctl:kernels) [[ $before == kernels ]] && words="ls import remove undo" || compopt -o default ;;
	npuctl:why) words=$(_npud_ids tickets) ;;
	npuctl:plan | npu-head:* | npu-bench:*) compopt -o default ;; # models and other files
	esac
}

_npud() {
	local program=$1 word=$2 before=$3 name=${1##*/} help commands words= i
	help=$("$program" --help 2>/dev/null) || return
	commands=$(_npud_commands "$name" "$help")
	COMPREPLY=()
	if [[ $name == npu-hold && $before == -- ]]; then
		mapfile -t COMPREPLY < <(compgen -c -- "$word")
		return
	fi
	if [[ $before == -?* ]] && _npud_value "$before" "$name" "$help"; then
		:
	elif [[ $word == -* ]]; then
		words=$(grep -oE -- '(^|[ ,])--[a-z][a-z0-9-]*' <<<"$help" | tr -d ' ,' | sort -u)
	else
		for ((i = 1; i < COMP_CWORD; i++)); do
			[[ " $commands" == *" ${COMP_WORDS[i]} "* ]] && break
		done
		if ((i < COMP_CWORD)); then
			_npud_argument "$name" "${COMP_WORDS[i]}"
		elif [ -n "$commands" ]; then
			words=$commands
		else
			compopt -o default
		fi
	fi
	[ -z "$words" ] || mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}

complete -F _npud npud npuctl npu-head npu-hold npu-bench
