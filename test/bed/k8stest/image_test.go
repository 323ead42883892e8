package k8stest

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	longhorn "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/client"
	"ankole.storage/test/lack"
)

// golden is the backing image of virtual machines.
const golden = "golden"

// bootsFromImage: a StorageClass has a backing image downloaded, a compressed qcow2 file with a
// root file system. Claims of it are disks of virtual machines, each of which is a Pod with an
// emulator, as KubeVirt has them. A machine boots from its disk, writes to its root file system and
// reads what it wrote, and again after a boot on another node; another machine sees nothing of it.
// The files of the image stay as they were downloaded.
func bootsFromImage(b *bed) {
	folder := b.Path("boot")
	image := b.bootImage(folder)
	sum := sha512.Sum512(image)
	url := b.serve(image)
	b.apply(fmt.Sprintf(`apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: golden}
provisioner: driver.longhorn.io
parameters:
  numberOfReplicas: "2"
  migratable: "true"
  backingImage: %s
  backingImageDataSourceType: download
  backingImageDataSourceParameters: '{"url": %q}'
  backingImageChecksum: %s
`, golden, url, hex.EncodeToString(sum[:])))
	began := time.Now()
	for _, name := range []string{"vm-a", "vm-b"} {
		b.claim(name, claim{size: "128Mi", class: golden, block: true, many: true})
	}
	b.took("from the class to two claims that are bound", began)

	first := b.boot("vm-a", "node-1", folder)
	other := b.boot("vm-b", "node-2", folder)
	again := b.boot("vm-a", "node-3", folder)
	for _, m := range []struct {
		what     string
		got      guest
		boot     string
		own      string
		freshOwn bool
	}{{"the first boot", first, "1", first.own, true}, {"another machine", other, "1", other.own, true},
		{"the next boot, on another node", again, "2", first.own, false}} {
		if m.got.root != "/dev/vda ext4" || m.got.boot != m.boot || m.got.fresh != m.freshOwn || m.got.own != m.own ||
			m.got.golden != first.golden || len(m.got.golden) != 64 || len(m.got.own) != 64 {
			b.t.Errorf("%s: %+v, want boot %s from /dev/vda, own %s, golden %s", m.what, m.got, m.boot, m.own, first.golden)
		}
	}
	if first.own == other.own {
		b.t.Errorf("two machines wrote the same: %s", first.own)
	}
	b.copiesAre(golden, hex.EncodeToString(sum[:]))
	b.unclaim("vm-a", "vm-b")
	b.kubectlOK("delete", "storageclass", golden)
	b.removeImage(golden)
}

// bootImage makes, in a folder, what machines boot with: a kernel, an initial file system with the
// drivers of their disk; and returns the image of that disk.
func (b *bed) bootImage(folder string) []byte {
	b.t.Helper()
	packages := filepath.Join(filepath.Dir(b.program), "packages")
	if kernels, err := filepath.Glob(filepath.Join(packages, "vm", "boot", "vmlinuz-*")); err != nil || len(kernels) != 1 {
		lack.Skip(b.t, "no kernel in bin/packages/vm: tools/hunt.sh k8s unpacks one")
	}
	for _, p := range []string{"qemu-system-x86_64", "qemu-img"} {
		if _, err := exec.LookPath(p); err != nil {
			lack.Skip(b.t, p+" is missing; tools/hunt.sh k8s installs what is needed")
		}
	}
	if out, err := exec.Command("sh", "-euc", makeImage, "sh", packages, folder).CombinedOutput(); err != nil {
		b.t.Fatalf("making an image: %v\n%s", err, out)
	}
	image, err := os.ReadFile(filepath.Join(folder, "golden.qcow2"))
	if err != nil {
		b.t.Fatal(err)
	}
	return image
}

// makeImage makes the files of bootImage.
const makeImage = `packages=$1 folder=$2
busybox=$packages/toolbox/bin/busybox
for tree in root initial; do
	for name in bin dev proc sys sbin root; do mkdir -p "$folder/$tree/$name"; done
	cp "$busybox" "$folder/$tree/bin/busybox"
done
cd "$folder"

cat >root/sbin/init <<'END'
#!/bin/busybox sh
fresh=yes
[ ! -e /own ] || fresh=no
boot=$(($(busybox cat /boots 2>/dev/null || echo 0) + 1))
echo $boot >/boots
[ $fresh = no ] || busybox dd if=/dev/urandom of=/own bs=1M count=8 2>/dev/null
busybox sync
echo 3 >/proc/sys/vm/drop_caches
echo "guest: root $(busybox awk '$2 == "/" && $1 != "rootfs" { print $1, $3 }' /proc/mounts)"
echo "guest: boot $boot"
echo "guest: fresh $fresh"
echo "guest: golden $(busybox sha256sum </golden | busybox cut -c1-64)"
echo "guest: own $(busybox sha256sum </own | busybox cut -c1-64)"
busybox mount -o remount,ro /
busybox poweroff -f
END
chmod 755 root/sbin/init
head -c 16M /dev/urandom >root/golden
mkfs.ext4 -q -d root disk.raw 64M
qemu-img convert -c -O qcow2 disk.raw golden.qcow2

cp "$packages"/vm/boot/vmlinuz-* vmlinuz
version=$(ls "$packages/vm/lib/modules")
from=$packages/vm/lib/modules/$version to=initial/lib/modules/$version
mkdir -p "$to/kernel/drivers"
cp "$from"/modules.* "$to"
cp -r "$from/kernel/drivers/virtio" "$from/kernel/drivers/block" "$to/kernel/drivers"
cat >initial/init <<'END'
#!/bin/busybox sh
busybox mount -t devtmpfs devtmpfs /dev
busybox mount -t proc proc /proc
busybox ln -s /bin/busybox /sbin/modprobe
busybox depmod
for name in virtio_pci virtio_blk; do busybox modprobe $name; done
busybox mount -t ext4 /dev/vda /root
for name in dev proc; do busybox mount -o move /$name /root/$name; done
exec busybox switch_root /root /sbin/init
END
chmod 755 initial/init
(cd initial && find . | "$busybox" cpio -o -H newc) >initramfs 2>/dev/null
rm -r root initial disk.raw
`

// serve serves a file on the machine's address in the bed's network, and returns its URL.
func (b *bed) serve(content []byte) string {
	b.t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(b.Host(), "0"))
	if err != nil {
		b.t.Fatal(err)
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		_, _ = w.Write(content) // the client has gone
	})}
	go func() { _ = s.Serve(l) }() // until it is closed
	b.t.Cleanup(func() { _ = s.Close() })
	return "http://" + l.Addr().String() + "/golden.qcow2"
}

// guest is what a virtual machine has said of one boot.
type guest struct {
	// root is the device of its root file system, and its type.
	root, boot string
	// fresh: the file that the machine writes at its first boot was not there.
	fresh bool
	// golden and own are checksums of the file that is in the image, and of the machine's own.
	golden, own string
}

// boot runs a machine with a claim as its disk, in a Pod on a node, until it is switched off. The
// emulator is the node's.
func (b *bed) boot(claim, node, folder string) (g guest) {
	b.t.Helper()
	began := time.Now()
	b.apply(fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: default}
spec:
  nodeSelector: {kubernetes.io/hostname: %[2]s}
  restartPolicy: Never
  containers:
  - name: work
    image: %[3]s
    imagePullPolicy: Never
    command: [/usr/bin/qemu-system-x86_64, -accel, tcg, -cpu, max, -m, "256", -display, none, -nic, none, -serial, stdio,
      -monitor, none, -no-reboot, -kernel, /boot/vmlinuz, -initrd, /boot/initramfs,
      -append, console=ttyS0 panic=-1 quiet no_timer_check, -drive, "file=/dev/data,format=raw,if=virtio,cache=none"]
    volumeDevices: [{name: data, devicePath: /dev/data}]
    volumeMounts:
    - {name: usr, mountPath: /usr, readOnly: true}
    - {name: boot, mountPath: /boot, readOnly: true}
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: %[1]s}}
  - {name: usr, hostPath: {path: /usr}}
  - {name: boot, hostPath: {path: %[4]s}}
`, claim, node, tools, folder))
	said := b.ended(claim)
	b.took("boot of "+claim+" on "+node, began)
	says := map[string]*string{"root": &g.root, "boot": &g.boot, "golden": &g.golden, "own": &g.own, "fresh": new(string)}
	for line := range strings.Lines(said) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "guest: "); ok {
			if key, value, _ := strings.Cut(rest, " "); says[key] != nil {
				*says[key] = value
			}
		}
	}
	g.fresh = *says["fresh"] == "yes"
	if g.boot == "" {
		b.t.Errorf("%s has not come to its end; its console:\n%s", claim, said)
	}
	return g
}

// imageFiles are the copies of an image on the nodes.
func (b *bed) imageFiles(image string) (found []string) {
	b.t.Helper()
	for k := 1; k <= b.Nodes; k++ {
		files, err := filepath.Glob(b.view(k, "/var/lib/longhorn/backing-images/"+image+"-*/*"))
		if err != nil {
			b.t.Fatal(err)
		}
		found = append(found, files...)
	}
	return found
}

// copiesAre sees that an image has a copy on each disk with a replica that stands on it, and none
// elsewhere: ready, and with this checksum.
func (b *bed) copiesAre(image, sum string) {
	b.t.Helper()
	volumes, err := b.rest.Volumes(context.Background())
	if err != nil {
		b.t.Fatal(err)
	}
	used := map[string]bool{}
	for _, v := range volumes {
		for _, r := range v.Replicas {
			if v.BackingImage == image {
				used[r.DiskID] = true
			}
		}
	}
	i, err := b.rest.BackingImage(context.Background(), image)
	if err != nil {
		b.t.Fatal(err)
	}
	for disk, f := range i.DiskFileStatusMap {
		if f.State != string(longhorn.BackingImageStateReady) {
			b.t.Errorf("the copy on disk %s is %+v", disk, f)
		}
	}
	files := slices.DeleteFunc(b.imageFiles(image), func(name string) bool { return filepath.Base(name) != "backing" })
	if n := len(used); n < 2 || len(files) != n || len(i.DiskFileStatusMap) != n {
		b.t.Errorf("%d copies, and the files %v; disks with replicas: %v", len(i.DiskFileStatusMap), files, used)
	}
	for _, name := range files {
		content, err := os.ReadFile(name)
		if got := sha512.Sum512(content); err != nil || hex.EncodeToString(got[:]) != sum {
			b.t.Errorf("%s has other content than the image, %v", name, err)
		}
	}
}

// removeImage deletes an image, and waits until nothing is left of it.
func (b *bed) removeImage(image string) {
	b.t.Helper()
	b.await("image "+image+" is deleted", func(ctx context.Context) error {
		if err := b.rest.DeleteBackingImage(ctx, image); err != nil && !client.IsNotFound(err) {
			return err
		}
		if files := b.imageFiles(image); len(files) > 0 {
			return fmt.Errorf("%v are left", files)
		}
		if _, err := b.rest.BackingImage(ctx, image); !client.IsNotFound(err) {
			return fmt.Errorf("it is there, %v", err)
		}
		return nil
	})
}
