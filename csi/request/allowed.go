package request

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A StorageClass, and a PersistentVolume that somebody has made by hand, name arguments of mkfs and
// mount options, with which root of the node calls programs. Those that say how the file system is
// laid out or used are allowed. Those that name another file or another device are not: -d of
// mkfs.ext4 copies a folder of the node into the volume, -p of mkfs.xfs files, journals and logs
// can lie on any device. Sources: mke2fs(8), mkfs.xfs(8), mount(8), ext4(5), xfs(5).

// mkfsRules are what may be given to a program.
type mkfsRules struct {
	// valued and plain are letters of options with a value and without one.
	valued, plain string
}

var allowedMkfs = map[string]mkfsRules{
	Ext4: {valued: "bCEgGiIJLmNOTUe", plain: "jKDqv"},
	XFS:  {valued: "bdilnsmL", plain: "Kq"},
}

// mkfsValue is how values look: suboptions with numbers, units and names, and nothing that could be
// a path.
var mkfsValue = regexp.MustCompile(`^[A-Za-z0-9=,^.:%_-]+$`)

// elsewhere are suboptions that name another file or device, or say that the result is no file
// system of this device alone.
var elsewhere = []string{"name", "file", "logdev", "rtdev", "device", "journal_dev", "offset", "test_fs", "mmp"}

// checkMkfs refuses arguments of mkfs that may not be given.
func checkMkfs(fsType string, args []string) error {
	rules := allowedMkfs[fsType]
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if len(arg) < 2 || arg[0] != '-' {
			return Refuse("parameter %s: %q is no option; of mkfs.%s these are allowed: %s", ParamMkfs, arg, fsType, rules)
		}
		letter, value := arg[1:2], arg[2:]
		switch {
		case strings.Contains(rules.plain, letter) && value == "":
			continue
		case !strings.Contains(rules.valued, letter):
			return Refuse("parameter %s: option %q of mkfs.%s is not allowed; these are: %s", ParamMkfs, arg, fsType, rules)
		}
		if value == "" {
			if i++; i == len(args) {
				return Refuse("parameter %s: option %s has no value", ParamMkfs, arg)
			}
			value = args[i]
		}
		if !mkfsValue.MatchString(value) {
			return Refuse("parameter %s: the value %q of option -%s has other characters than letters, digits and =,^.:%%_-",
				ParamMkfs, value, letter)
		}
		for sub := range strings.SplitSeq(value, ",") {
			if key, _, _ := strings.Cut(sub, "="); letter != "L" && slices.Contains(elsewhere, key) {
				return Refuse("parameter %s: %s in option -%s is not allowed: a file system lies on its volume and nowhere else",
					ParamMkfs, key, letter)
			}
		}
	}
	return nil
}

// String lists what is allowed.
func (r mkfsRules) String() string {
	var all []string
	for _, letter := range r.valued + r.plain {
		all = append(all, fmt.Sprintf("-%c", letter))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// Mount options of every file system, and of each; those that end in "=" have a value.
var (
	mountAnyway = strings.Fields(`ro rw defaults noatime nodiratime relatime norelatime strictatime nostrictatime lazytime
		nolazytime sync async dirsync exec noexec suid nosuid dev nodev diratime atime iversion noiversion silent loud mand
		nomand discard nodiscard auto noauto _netdev nofail noquota quota usrquota grpquota prjquota context= fscontext=
		defcontext= rootcontext= seclabel dax dax=`)
	mountOptions = map[string][]string{
		Ext4: strings.Fields(`acl noacl user_xattr nouser_xattr barrier nobarrier barrier= commit= data= data_err= delalloc
			nodelalloc errors= auto_da_alloc noauto_da_alloc auto_da_alloc= noload norecovery dioread_lock dioread_nolock
			max_batch_time= min_batch_time= journal_checksum nojournal_checksum journal_async_commit journal_ioprio= stripe=
			init_itable init_itable= noinit_itable inode_readahead_blks= i_version block_validity noblock_validity
			max_dir_size_kb= prefetch_block_bitmaps no_prefetch_block_bitmaps mb_optimize_scan= resuid= resgid= bsddf minixdf
			grpid bsdgroups nogrpid sysvgroups nombcache debug jqfmt= usrjquota= grpjquota= inlinecrypt`),
		XFS: strings.Fields(`allocsize= attr2 noattr2 filestreams ikeep noikeep inode32 inode64 largeio nolargeio logbsize=
			logbufs= noalign norecovery nouuid uquota gquota pquota uqnoenforce gqnoenforce pqnoenforce qnoenforce sunit=
			swidth= swalloc wsync lifetime max_open_zones=`),
	}
	mountValue = regexp.MustCompile(`^[A-Za-z0-9_.:-]*$`)
	// mountLabel is the security context of a Pod, in quotes since its categories are a list.
	mountLabel = regexp.MustCompile(`^"[A-Za-z0-9_.:,-]*"$`)
	// mountOption ends at a comma that is not in quotes.
	mountOption = regexp.MustCompile(`(?:[^,"]|"[^"]*"?)+`)
)

// CheckAllowed refuses what mkfs or mount would be told about another file system than that of the
// volume: INVALID_ARGUMENT.
func (u *Usage) CheckAllowed(fsType string, mkfs []string) error {
	if u.Block {
		return nil
	}
	if err := checkMkfs(fsType, mkfs); err != nil {
		return err
	}
	return checkMountOptions(fsType, u.Flags)
}

// checkMountOptions refuses mount options that may not be given.
func checkMountOptions(fsType string, flags []string) error {
	for _, f := range flags {
		for _, o := range mountOption.FindAllString(f, -1) {
			key, value, has := strings.Cut(strings.TrimSpace(o), "=")
			if has {
				key += "="
			}
			known := slices.Contains(mountAnyway, key) || slices.Contains(mountOptions[fsType], key)
			if !known || !mountValue.MatchString(value) && !mountLabel.MatchString(value) {
				return Refuse("mount option %q is none of a file system %s that says how the volume's own is used: it is not "+
					"allowed", o, fsType)
			}
		}
	}
	return nil
}
