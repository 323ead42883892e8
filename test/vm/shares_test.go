package vm

import "testing"

// server starts a server of NFS before the tests.
const server = `
echo "127.0.0.1 localhost" >/etc/hosts
echo 'tcp6 tpi_cots_ord v inet6 tcp - -
udp tpi_clts v inet udp - -
tcp tpi_cots_ord v inet tcp - -
local tpi_cots_ord - loopback - - -' >/etc/netconfig
echo '_rpc:x:1::::' >>/etc/passwd
echo 'sunrpc 111/tcp portmapper
sunrpc 111/udp portmapper' >/etc/services
busybox mkdir -p /run/rpcbind /run/ganesha /var/run/ganesha /var/lib/nfs/ganesha /tmp/nfs
busybox ln -s /proc/self/mounts /etc/mtab
export LD_LIBRARY_PATH=/usr/lib/ganesha
rpcbind -w || echo "rpcbind does not start"
echo '
NFS_CORE_PARAM { Protocols = 4; Enable_UDP = false; Enable_RQUOTA = false; Enable_NLM = false;
	Plugins_Dir = /usr/lib/x86_64-linux-gnu/ganesha; }
NFSv4 { Graceless = true; Minor_Versions = 0, 1, 2; Only_Numeric_Owners = true; RecoveryRoot = /tmp; }
EXPORT { Export_Id = 1; Path = /tmp/nfs; Pseudo = /export; Access_Type = RW; Squash = No_Root_Squash; SecType = sys;
	Filesystem_Id = 1.1; FSAL { Name = VFS; } }
' >/tmp/ganesha.conf
ganesha.nfsd -F -f /tmp/ganesha.conf -L /tmp/ganesha.log -p /tmp/ganesha.pid &
n=0
until busybox netstat -lnt | busybox grep -q :2049 || [ $n = 90 ]; do n=$((n + 1)); busybox sleep 1; done
[ $n -lt 90 ] || busybox tail -n 50 /tmp/ganesha.log
export ANKOLE_NFS=nfs://localhost:/export ANKOLE_NFS_SERVER=$(busybox pidof ganesha.nfsd)
`

// TestShares: backup workers on shares, with the kernel's client of NFS.
func TestShares(t *testing.T) {
	machine{payload: "backup/worker/work", wanted: "^TestNFS$", trees: []string{"toolbox", "shares"},
		modules: []string{"nfsv4"}, folders: []string{"kernel/fs", "kernel/net", "kernel/crypto",
			"kernel/arch/x86/crypto", "kernel/lib", "kernel/drivers/block"}, setup: server}.run(t)
}
