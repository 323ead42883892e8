# What removes all that tests have left on the machine, by the folder they worked in. Source it.

# processes_of <folder>: those that have it in their environment. Those of containers do too: their HOME is in it.
processes_of() {
	for p in /proc/[0-9]*; do
		! grep -qsF "$1" "$p/environ" || echo "${p#/proc/}"
	done
}

# mounts_of <folder>: lines "device type mount point", the newest first.
mounts_of() { awk -v dir="$1/" 'index($5, dir) == 1 { for (i = 7; $i != "-"; i++); print $3, $(i + 1), $5 }' /proc/self/mountinfo | tac; }

# sweep <folder>: aborts the FUSE connections of tests, ends their processes, and removes mounts, loop devices and the
# folder. Aborting comes first: whoever waits for a device that nobody serves ends by no signal, and to look at the
# environment of such a process would wait for it.
sweep() (
	unset TMPDIR
	dir=$1
	mounts_of "$dir" | while read -r device type point; do
		case $type in fuse*) echo 1 2>/dev/null >"/sys/fs/fuse/connections/${device#*:}/abort" ;; esac
	done
	left=$(processes_of "$dir")
	[ -z "$left" ] || {
		kill -TERM $left 2>/dev/null
		for _ in 1 2 3 4 5 6 7 8 9 10; do
			left=$(processes_of "$dir")
			[ -n "$left" ] || break
			sleep 1
		done
	}
	[ -z "$left" ] || {
		echo "tests have left processes, which are killed: $left"
		kill -KILL $left 2>/dev/null
	}
	mounts_of "$dir" | while read -r device type point; do
		[ -z "${type##fuse*}" ] || umount -l "$point"
	done
	losetup -l -n -O NAME,BACK-FILE 2>/dev/null | while read -r loop file; do
		case $file in "$dir"/*) losetup -d "$loop" ;; esac
	done
	mounts_of "$dir" | while read -r device type point; do umount -l "$point"; done
	# Below a mount is something else, the host's own files even.
	[ -z "$(mounts_of "$dir")" ] || {
		echo "still mounted, so it is not removed: $dir" >&2
		return 1
	}
	rm -rf "$dir"
)

# sweep_dead sweeps what runs have left that were killed: folders that name the process of their run. One without a name
# is somebody else's, or that of a run which is about to write it.
sweep_dead() {
	for dir in /tmp/ak.????; do
		[ -O "$dir" ] && [ -s "$dir/pid" ] && ! kill -0 "$(cat "$dir/pid")" 2>/dev/null || continue
		echo "removing what a run has left that was killed: $dir"
		sweep "$dir"
	done
}
