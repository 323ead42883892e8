package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/rest/resource"
)

// s3Server is one with a certificate that nobody knows, for the user "right". It has bucket
// "bucket".
type s3Server struct {
	*httptest.Server
	backend gofakes3.Backend
	mu      sync.Mutex
	// polls counts lists of volumes that have begun, requests those below prefix.
	polls, requests int
	prefix          string
	// held is called with each block that is sent.
	held func()
}

func serveS3(t *testing.T) *s3Server {
	backend := s3mem.New()
	if err := backend.CreateBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	fake := gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	s := &s3Server{backend: backend}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		held := s.count(r)
		switch {
		case !strings.Contains(r.Header.Get("Authorization"), "Credential=right/"):
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `<Error><Code>InvalidAccessKeyId</Code><Message>who is that</Message></Error>`)
			return
		case held != nil && r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, ".blk"):
			held()
		}
		fake.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *s3Server) count(r *http.Request) (held func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	listed := r.URL.Query().Get("prefix")
	if s.prefix != "" && (strings.HasPrefix(listed, s.prefix) || strings.HasPrefix(r.URL.Path, "/bucket/"+s.prefix)) {
		s.requests++
		if r.URL.Query().Get("start-after") == s.prefix+"backupstore/volumes/" {
			s.polls++
		}
	}
	return s.held
}

// counts counts requests below a prefix from now on, and returns what was counted before.
func (s *s3Server) counts(prefix string) (polls, requests int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	polls, requests = s.polls, s.requests
	s.prefix, s.polls, s.requests = prefix, 0, 0
	return polls, requests
}

func (s *s3Server) counted() (polls, requests int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.polls, s.requests
}

// blocks are those that the server has, by their names, with what each begins with.
func (s *s3Server) blocks(t *testing.T) map[string][]byte {
	t.Helper()
	list, err := s.backend.ListBucket("bucket", nil, gofakes3.ListBucketPage{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, c := range list.Contents {
		if !strings.HasSuffix(c.Key, ".blk") {
			continue
		}
		o, err := s.backend.GetObject("bucket", c.Key, nil)
		if err != nil {
			t.Fatal(err)
		}
		begin := make([]byte, 16)
		if _, err := io.ReadFull(o.Contents, begin); err != nil {
			t.Fatal(err)
		}
		_ = o.Contents.Close() // nothing was written to it
		all[c.Key] = begin
	}
	return all
}

// hold calls f with each block that is sent; nil: none.
func (s *s3Server) hold(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = f
}

// secretText is in what nobody may tell.
const secretText = "hunter2hunter2"

// scenarioBackupS3: backups in a bucket, by the keys of a Secret. What is wrong with them is said
// by the target, and nothing of them is told. What the store is asked, and how often. The URL of
// the target changes while a backup is made.
func scenarioBackupS3(t *testing.T, c *cluster) {
	s := serveS3(t)
	at := &s3Test{cluster: c, server: s}
	defer func() {
		c.target("")
		_ = kubernetesOf(t, c).CoreV1().Secrets(namespace).Delete(context.Background(), "aws-secret", metav1.DeleteOptions{})
	}()
	at.share()
	at.wrongSecrets()

	t.Log("a backup, and one with a Secret that is wrong by then")
	c.create("b5", cloneSize, 1)
	defer c.remove("b5")
	d := c.device(c.attach("b5", "node-1", 1))
	fill(t, d, 5)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	defer c.detach("b5")
	defer c.noBackups("b5")
	c.complete("b5", c.backUp("b5", "s1"))
	at.secret("wrong", at.ca())
	refused := c.backUp("b5", "s2")
	c.eventually("a backup that the store refuses is an error", func(context.Context) error {
		b := c.backup(refused)
		if b.State != "Error" || !strings.Contains(b.Error, "who is that") {
			return fmt.Errorf("%s: %s", b.State, b.Error)
		}
		if strings.Contains(b.Error, secretText) {
			t.Errorf("told: %s", b.Error)
		}
		return nil
	})
	at.secret("right", at.ca())
	c.complete("b5", c.order("b5", "s2"))

	at.encrypted()
	at.polls()
	at.moved()
}

// encrypted: with a key in the Secret nothing is sent in the clear, beside what is there, and
// without that key nothing is made. After a rotation both are restored.
func (at *s3Test) encrypted() {
	at.t.Log("encrypted backups")
	one, two := encryptionKey(1), encryptionKey(2)
	before := at.server.blocks(at.t)
	at.secret("right", at.ca(), one)
	first := at.complete("b5", at.order("b5", "s2"))
	id := first.Labels["ankole.storage/encryption-key"]
	if first.CompressionMethod != "encrypted-lz4" || id == "" {
		at.t.Errorf("method %s, labels %v", first.CompressionMethod, first.Labels)
	}
	after := at.server.blocks(at.t)
	for name, begin := range after {
		if before[name] == nil && !bytes.HasPrefix(begin, []byte("\x89ANKBLK\x01")) {
			at.t.Errorf("%s begins with %q", name, begin)
		}
	}
	if len(after) <= len(before) {
		at.t.Errorf("%d blocks, and %d before", len(after), len(before))
	}
	want := hashDevice(at.t, at.cluster, at.volume("b5").Controllers[0].Endpoint)
	at.secret("right", at.ca(), two)
	refused := at.order("b5", "s1")
	at.eventually("a backup after one whose key is gone is refused", func(context.Context) error {
		b := at.backup(refused)
		if b.State != "Error" || !strings.Contains(b.Error, "is encrypted with key "+id) {
			return fmt.Errorf("%s: %s %v", b.State, b.Error, b.Messages)
		}
		return nil
	})
	if err := at.rest.DeleteBackup(context.Background(), refused); err != nil {
		at.t.Fatal(err)
	}
	at.eventually("what the store has never had can be deleted", func(ctx context.Context) error {
		b, err := at.rest.Backup(ctx, refused)
		if err == nil {
			return fmt.Errorf("%s %v", b.State, b.Messages)
		}
		return nil
	})
	at.secret("right", at.ca(), two, one)
	second := at.complete("b5", at.order("b5", "s2"))
	if second.Labels["ankole.storage/encryption-key"] == id {
		at.t.Errorf("key %s after the rotation", id)
	}
	at.restoreAndCompare("b5-first", first.URL, want)
	at.secret("right", at.ca(), "", two, one) // the next ones are not encrypted
}

type s3Test struct {
	*cluster
	server *s3Server
}

func (at *s3Test) ca() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: at.server.Certificate().Raw}))
}

// secret writes the Secret of the target, with encryption keys if there are any.
func (at *s3Test) secret(user, ca string, keys ...string) {
	at.t.Helper()
	values := map[string]string{"AWS_ACCESS_KEY_ID": user, "AWS_SECRET_ACCESS_KEY": secretText,
		"AWS_ENDPOINTS": at.server.URL, "AWS_CERT": strings.TrimSpace(ca)}
	if len(keys) > 0 {
		values["BACKUP_ENCRYPTION_KEY"], values["BACKUP_ENCRYPTION_OLD_KEYS"] = keys[0], strings.Join(keys[1:], ",")
	}
	at.cluster.secret("aws-secret", values)
}

// secret writes a Secret of a backup target, and returns what deletes it.
func (c *cluster) secret(name string, values map[string]string) (remove func()) {
	c.t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, StringData: values}
	ctx, secrets := context.Background(), kubernetesOf(c.t, c).CoreV1().Secrets(namespace)
	remove = func() {
		if err := secrets.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			c.t.Fatal(err)
		}
	}
	remove()
	if _, err := secrets.Create(ctx, s, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	return remove
}

// encryptionKey is a key of equal bytes, as a Secret has it.
func encryptionKey(b byte) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32))
}

// set gives the target a URL and its Secret.
func (at *s3Test) set(folder, interval string) error {
	_, err := at.rest.UpdateBackupTarget(context.Background(), resource.BackupTarget{Name: "default",
		BackupTargetURL: "s3://bucket@us-east-1/" + folder, CredentialSecret: "aws-secret", PollInterval: interval})
	return err
}

// says sets the target, and waits until it says something, "" for that it is available.
func (at *s3Test) says(folder, text string) {
	at.t.Helper()
	if err := at.set(folder, "300"); err != nil {
		at.t.Fatal(err)
	}
	at.eventually("the target at "+folder+" says: "+text, func(context.Context) error {
		b := at.backupTarget()
		if strings.Contains(b.Message, secretText) {
			at.t.Errorf("told: %s", b.Message)
		}
		if b.Available != (text == "") || !strings.Contains(b.Message, text) {
			return fmt.Errorf("available %v: %s", b.Available, b.Message)
		}
		return nil
	})
}

// share: a target that the instance manager would have to mount says why it cannot be.
func (at *s3Test) share() {
	at.target("nfs://127.0.0.1:/export?nfsOptions=soft,port=1") // where nobody listens
	want := "its server does not answer"
	if os.Getuid() != 0 {
		want = "takes a privileged Pod"
	}
	at.eventually("the target says why a share is not mounted", func(context.Context) error {
		if b := at.backupTarget(); b.Available || !strings.Contains(b.Message, want) {
			return fmt.Errorf("%+v", b)
		}
		return nil
	})
}

func (at *s3Test) wrongSecrets() {
	at.says("a", "secret aws-secret of backup target default does not exist")
	at.secret("right\n", at.ca())
	if err := at.set("b", "300"); err == nil || !strings.Contains(err.Error(), "AWS_ACCESS_KEY_ID begins or ends with") ||
		strings.Contains(err.Error(), secretText) {
		at.t.Errorf("a key with a line's end: %v", err)
	}
	at.secret("right", "")
	at.says("c", "certificate")
	at.secret("wrong", at.ca())
	at.says("d", "who is that")
	at.secret("right", at.ca(), secretText)
	at.says("g", "BACKUP_ENCRYPTION_KEY of the Secret is not 32 bytes in base64")
	at.secret("right", at.ca())
	at.says("e", "")
}

// polls: an unchanged poll costs a request for each volume, of which the store has one, and one
// more; without an interval nothing is asked.
func (at *s3Test) polls() {
	if err := at.set("e", "2"); err != nil {
		at.t.Fatal(err)
	}
	at.eventually("a poll of what is known costs two requests", func(context.Context) error {
		at.server.counts("e/")
		at.eventually("two polls", func(context.Context) error {
			if polls, _ := at.server.counted(); polls < 3 {
				return fmt.Errorf("%d polls", polls)
			}
			return nil
		})
		if polls, requests := at.server.counted(); requests > 2*polls {
			return fmt.Errorf("%d requests in %d polls", requests, polls)
		}
		return nil
	})
	if err := at.set("e", "0"); err != nil {
		at.t.Fatal(err)
	}
	// One poll may be under way; what follows takes longer than the interval was.
	at.eventually("no polls", func(context.Context) error {
		at.server.counts("e/")
		at.detach("b5")
		at.attach("b5", "node-2", 1)
		if _, requests := at.server.counted(); requests > 0 {
			return fmt.Errorf("%d requests without an interval", requests)
		}
		return nil
	})
}

// moved: the target gets another URL while a backup is made. That one is no backup of the new
// store, and the next one is.
func (at *s3Test) moved() {
	at.t.Log("the target's URL changes while a backup is made")
	d := at.device(at.volume("b5").Controllers[0].Endpoint)
	fill(at.t, d, 6)
	if err := d.Close(); err != nil {
		at.t.Fatal(err)
	}
	sent, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	at.server.hold(func() { once.Do(func() { close(sent) }); <-release })
	var let sync.Once
	free := func() { let.Do(func() { at.server.hold(nil); close(release) }) }
	defer free()
	name := at.backUp("b5", "s3")
	at.eventually("blocks are sent", func(context.Context) error {
		select {
		case <-sent:
			return nil
		default:
			return errors.New(at.backup(name).State)
		}
	})
	at.says("f", "")
	free()
	at.eventually("the backup is none of the new store", func(ctx context.Context) error {
		b, err := at.rest.Backup(ctx, name)
		if err != nil {
			return nil // gone with its backup volume
		}
		if b.State == "Completed" {
			at.t.Fatalf("%+v", b)
		}
		if b.State != "Error" {
			return fmt.Errorf("%s %v", b.State, b.Messages)
		}
		return nil
	})
	b := at.complete("b5", at.order("b5", "s3"))
	if !strings.HasPrefix(b.URL, "s3://bucket@us-east-1/f/") {
		at.t.Errorf("the next one is at %s", b.URL)
	}
}

// noBackups deletes the backups of a volume.
func (c *cluster) noBackups(volume string) {
	for _, b := range c.backups(volume) {
		if err := c.rest.DeleteBackup(context.Background(), b.Name); err != nil {
			c.t.Error(err)
		}
	}
	c.eventually("no backups are left", func(context.Context) error {
		if left := c.backups(volume); len(left) > 0 {
			return fmt.Errorf("%d are left, %s %s: %v", len(left), left[0].State, left[0].Name, left[0].Messages)
		}
		return nil
	})
}
