package csi

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/yaml"
)

// TestSecrets: what a Secret may say, and the defaults of the reference.
func TestSecrets(t *testing.T) {
	usual := []string{"--cipher=aes-xts-plain64", "--hash=sha256", "--key-size=256", "--pbkdf=argon2i"}
	for _, tc := range []struct {
		name, value string
		words       string // of a refusal
		want        []string
	}{
		{secretProvider, "secret", "", usual},
		{secretProvider, "vault", "vault", nil},
		{secretValue, "", secretValue, nil},
		{secretCipher, "serpent-xts-plain64", "", []string{"--cipher=serpent-xts-plain64", usual[1], usual[2], usual[3]}},
		{secretCipher, "capi:xts(aes)-plain64", "", []string{"--cipher=capi:xts(aes)-plain64", usual[1], usual[2], usual[3]}},
		{secretCipher, "--force-password", secretCipher, nil}, {secretCipher, "aes xts", secretCipher, nil},
		{secretCipher, "cipher_null-ecb", "encrypts nothing", nil},
		{secretHash, "sha512", "", []string{usual[0], "--hash=sha512", usual[2], usual[3]}},
		{secretHash, "/etc/passwd", secretHash, nil},
		{secretSize, "512\n", "", []string{usual[0], usual[1], "--key-size=512", usual[3]}},
		{secretSize, "100", secretSize, nil}, {secretSize, "-8", secretSize, nil}, {secretSize, "8000000", secretSize, nil},
		{secretPBKDF, "pbkdf2", "", []string{usual[0], usual[1], usual[2], "--pbkdf=pbkdf2"}},
		{secretPBKDF, "scrypt", "argon2id", nil},
		{secretIterations, "4", "", append(slices.Clone(usual), "--pbkdf-force-iterations=4")},
		{secretIterations, "0", secretIterations, nil},
		{secretMemory, "65536", "", append(slices.Clone(usual), "--pbkdf-memory=65536")},
		{secretMemory, "1Gi", secretMemory, nil},
		{"SOMETHING_ELSE", "1", "", usual},
	} {
		secrets := map[string]string{secretValue: "the words\n"}
		secrets[tc.name] = tc.value
		k, err := readKey(secrets)
		if tc.words != "" {
			wants(t, err, codes.InvalidArgument)
			says(t, err, tc.words)
			continue
		}
		if err != nil || k.value != "the words\n" || !slices.Equal(k.format, tc.want) {
			t.Errorf("%s=%q: %q, %v; want %q", tc.name, tc.value, k.format, err, tc.want)
		}
	}
}

// TestKeyIsNoArgument: what processes are started with can be read by everybody on the node.
func TestKeyIsNoArgument(t *testing.T) {
	t.Parallel()
	b := newEncryptedBed(t, 64*mib)
	s, ok := b.run.(*standIn)
	if !ok {
		return // the arguments are the same where cryptsetup is the real one
	}
	c := capability("ext4", once)
	b.must(b.stage(c), b.unstage(), b.stage(c), b.unstage())
	if n := s.formats(); n != 1 {
		t.Errorf("formatted %d times", n)
	}
	for _, want := range []string{"luks2", "-", "--cipher=aes-xts-plain64", "--pbkdf=pbkdf2",
		"--pbkdf-force-iterations=1000"} {
		if got := s.arguments("luksFormat"); !slices.Contains(got, want) {
			t.Errorf("luksFormat %q lacks %q", got, want)
		}
	}
	if got := s.arguments("open"); !slices.Contains(got, "--allow-discards") {
		t.Errorf("open %q lets no discards through", got)
	}
	for _, call := range s.calls {
		if strings.Contains(strings.Join(call, " "), b.secrets[secretValue]) {
			t.Errorf("the key is an argument: %q", call)
		}
	}
}

// TestForeignMapping: a device of the node that happens to have the volume's name is left alone,
// whether cryptsetup has made it or something else.
func TestForeignMapping(t *testing.T) {
	for name, change := range map[string]struct{ file, text string }{
		"of LVM":         {"dm/uuid", "LVM-xyz"},
		"on a disk":      {"slaves/loop0/loop/backing_file", "/var/lib/images/data.img"},
		"of crypttab":    {"slaves/loop0/dev", "8:1"},
		"a former, kept": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newEncryptedBed(t, 64*mib)
			if _, ok := b.run.(*standIn); !ok {
				return // sysfs is the kernel's
			}
			dir := filepath.Join(b.sys, "block/dm-7")
			files := map[string]string{"dev": "253:7", "dm/name": b.volume, "dm/uuid": "CRYPT-LUKS2-1-" + b.volume,
				"slaves/loop0/dev": "7:77", "slaves/loop0/loop/backing_file": "/dev/fuse/" + b.volume + " (deleted)"}
			if change.file != "" {
				files[change.file] = change.text
			}
			if change.text == "8:1" {
				delete(files, "slaves/loop0/loop/backing_file")
			}
			for _, file := range slices.Sorted(maps.Keys(files)) {
				path := filepath.Join(dir, file)
				b.must(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(files[file]+"\n"), 0o600))
			}
			m, err := b.mapping(b.volume)
			b.must(err)
			if m == nil || m.former() != (change.file == "") {
				t.Fatalf("%+v", m)
			}
			if change.file == "" {
				return
			}
			err = b.stage(capability("ext4", once))
			wants(t, err, codes.FailedPrecondition)
			says(t, err, "/dev/mapper/"+b.volume, "nothing is changed", "dmsetup rename "+b.volume+" NEW")
			b.must(b.unstage())
			if _, err := os.Stat(dir); err != nil || len(b.run.(*standIn).calls) != 0 {
				t.Errorf("%v; cryptsetup was called: %q", err, b.run.(*standIn).calls)
			}
		})
	}
}

// TestEncryptedOrders: the manager is told, a bad Secret is refused before anything is made, and a
// copy is as its source.
func TestEncryptedOrders(t *testing.T) {
	f := newFake()
	c := newController(f)
	r := request("pvc-1", gib)
	r.Parameters = map[string]string{paramEncrypted: "true"}
	r.Secrets = map[string]string{secretProvider: "vault", secretValue: "words"}
	_, err := c.CreateVolume(background, r)
	wants(t, err, codes.InvalidArgument)
	r.Secrets = map[string]string{secretPBKDF: "pbkdf2"}
	_, err = c.CreateVolume(background, r)
	wants(t, err, codes.InvalidArgument)
	says(t, err, secretValue)
	if len(f.volumes) != 0 {
		t.Fatal("a volume was made")
	}
	r.Secrets = map[string]string{secretValue: "words"}
	if v := ordered(t, c, r); v.CapacityBytes != gib || !f.volumes["pvc-1"].Encrypted ||
		f.volumes["pvc-1"].Size != strconv.Itoa(gib) {
		t.Errorf("%+v, %+v", v, f.volumes["pvc-1"])
	}
	r.Secrets = nil // the class names none for the provisioner
	ordered(t, c, r)
	r.Parameters = nil
	_, err = c.CreateVolume(background, r)
	wants(t, err, codes.AlreadyExists)
	says(t, err, "encryption")

	small := request("pvc-2", 16*mib)
	small.Parameters = map[string]string{paramEncrypted: "true"}
	_, err = c.CreateVolume(background, small)
	wants(t, err, codes.OutOfRange)
	says(t, err, "16 MiB")

	twin := request("pvc-3", gib)
	twin.VolumeContentSource = &spec.VolumeContentSource{Type: &spec.VolumeContentSource_Volume{
		Volume: &spec.VolumeContentSource_VolumeSource{VolumeId: "pvc-1"}}}
	_, err = c.CreateVolume(background, twin)
	wants(t, err, codes.InvalidArgument)
	says(t, err, "encrypted")

	block := capability("", once)
	for name, want := range map[string]bool{"pvc-1": true, "pvc-4": false} {
		if name == "pvc-4" {
			ordered(t, c, request(name, gib))
		}
		e, err := c.ControllerExpandVolume(background, &spec.ControllerExpandVolumeRequest{VolumeId: name,
			CapacityRange: &spec.CapacityRange{RequiredBytes: gib}, VolumeCapability: block})
		if err != nil || e.NodeExpansionRequired != want {
			t.Errorf("%s: the node is to expand a block volume: %v, %v; want %v", name, e.GetNodeExpansionRequired(), err, want)
		}
	}
}

// TestSampleOfEncryption: what users copy says what the driver reads, and names the Secret for
// each call.
func TestSampleOfEncryption(t *testing.T) {
	text, err := os.ReadFile("../deploy/samples/encrypted.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var secret corev1.Secret
	var class storagev1.StorageClass
	first, second, _ := strings.Cut(string(text), "\n---\n")
	if err := errors.Join(yaml.UnmarshalStrict([]byte(first), &secret),
		yaml.UnmarshalStrict([]byte(second), &class)); err != nil {
		t.Fatal(err)
	}
	if _, err := readKey(secret.StringData); err != nil {
		t.Error(err)
	}
	w, unknown, err := parse(class.Parameters)
	if err != nil || len(unknown) > 0 || !w.volume.Encrypted {
		t.Errorf("%+v, unknown %v, %v", w, unknown, err)
	}
	for _, call := range []string{"provisioner", "node-stage", "node-publish", "node-expand"} {
		prefix := reservedPrefix + call + "-secret-name"
		if class.Parameters[prefix] != secret.Name || class.Parameters[prefix+"space"] != secret.Namespace {
			t.Errorf("%s is %q in %q", call, class.Parameters[prefix], class.Parameters[prefix+"space"])
		}
	}
}
