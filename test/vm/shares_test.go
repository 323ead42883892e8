package vm

import "testing"

// nfs starts a server of NFS before the tests.
const nfs = `
echo 'tcp6 tpi_cots_ord v inet6 tcp - -
udp tpi_clts v inet udp - -
tcp tpi_cots_ord v inet tcp - -
local tpi_cots_ord - loopback - - -' >/etc/netconfig
echo '_rpc:x:1::::' >>/etc/passwd
echo 'sunrpc 111/tcp portmapper
sunrpc 111/udp portmapper' >/etc/services
busybox mkdir -p /run/rpcbind /run/ganesha /var/run/ganesha /var/lib/nfs/ganesha /tmp/nfs
busybox ln -s /proc/self/mounts /etc/mtab
rpcbind -w || echo "rpcbind does not start"
echo '
NFS_CORE_PARAM { Protocols = 4; Enable_UDP = false; Enable_RQUOTA = false; Enable_NLM = false;
	Plugins_Dir = /usr/lib/x86_64-linux-gnu/ganesha; }
NFSv4 { Graceless = true; Minor_Versions = 0, 1, 2; Only_Numeric_Owners = true; RecoveryRoot = /tmp; }
EXPORT { Export_Id = 1; Path = /tmp/nfs; Pseudo = /export; Access_Type = RW; Squash = No_Root_Squash; SecType = sys;
	Filesystem_Id = 1.1; FSAL { Name = VFS; } }
' >/tmp/ganesha.conf
LD_LIBRARY_PATH=/usr/lib/ganesha ganesha.nfsd -F -f /tmp/ganesha.conf -L /tmp/ganesha.log -p /tmp/ganesha.pid &
listens 2049 /tmp/ganesha.log
export ANKOLE_NFS=nfs://localhost:/export ANKOLE_NFS_SERVER=$(busybox pidof ganesha.nfsd)
`

// smb starts a server of SMB before the tests: a share, one that has room for 3 MiB, and one to
// read. Its processes are a group, of which each connection has one.
const smb = `
busybox mkdir -p /tmp/smb/store /tmp/smb/small /tmp/smb/fixed /tmp/samba
busybox mount -t tmpfs -o size=3m tmpfs /tmp/smb/small
echo 'nobody:x:65534:65534::/:/bin/false
backup:x:34:34::/:/bin/false' >>/etc/passwd
echo 'nogroup:x:65534:
backup:x:34:' >>/etc/group
busybox chown backup:backup /tmp/smb/*
echo '[global]
server role = standalone server
server min protocol = SMB2
smb ports = 445
disable netbios = yes
load printers = no
disable spoolss = yes
rpc start on demand helpers = no
passdb backend = tdbsam:/tmp/samba/passdb.tdb
private dir = /tmp/samba
state directory = /tmp/samba
cache directory = /tmp/samba
lock directory = /tmp/samba
pid directory = /tmp/samba
ncalrpc dir = /tmp/samba/ncalrpc
log file = /tmp/samba/log
path = /tmp/smb/%S
valid users = backup
read only = no
[store]
[small]
[fixed]
read only = yes' >/tmp/smb.conf
export CIFS_USERNAME=backup CIFS_PASSWORD='hunter2,,"x" \y,'
busybox printf '%s\n%s\n' "$CIFS_PASSWORD" "$CIFS_PASSWORD" | smbpasswd -c /tmp/smb.conf -s -a backup
smbd -F -l /tmp/samba -s /tmp/smb.conf &
export ANKOLE_SMB=cifs://localhost ANKOLE_SMB_SERVER=-$!
listens 445 /tmp/samba/log
`

// listens is a function of the shell that waits for a server of this machine.
const listens = `
echo "127.0.0.1 localhost" >/etc/hosts
listens() {
	n=0
	until busybox netstat -lnt | busybox grep -q ":$1 " || [ $n = 90 ]; do n=$((n + 1)); busybox sleep 1; done
	[ $n -lt 90 ] || busybox tail -n 50 "$2"
}
`

// TestShares: backup workers on shares, with the kernel's clients of NFS and SMB.
func TestShares(t *testing.T) {
	machine{payload: "backup/worker/work", wanted: "^(TestNFS|TestSMB)$", trees: []string{"toolbox", "shares"},
		modules: []string{"nfsv4", "cifs"}, folders: []string{"kernel/fs", "kernel/net", "kernel/crypto",
			"kernel/arch/x86/crypto", "kernel/lib", "kernel/drivers/block"}, setup: listens + nfs + smb}.run(t)
}
