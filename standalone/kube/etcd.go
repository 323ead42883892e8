package kube

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const (
	// etcdStartTimeout covers replaying a log after an unclean stop on a slow disk.
	etcdStartTimeout = 2 * time.Minute
	// compactionMinutes of history are kept; the API server asks for compaction too.
	compactionRetention = "10m"
	// quotaBytes is etcd's own advised maximum; a development cluster stays far below.
	quotaBytes = 8 << 30
)

type etcdServer struct{ e *embed.Etcd }

func (c *ControlPlane) startEtcd(ctx context.Context, creds *credentials) error {
	last := &lastWords{said: make(chan string, 1)}
	cfg, err := etcdConfig(c.cfg, creds, last)
	if err != nil {
		return err
	}
	e, err := openEtcd(cfg, last)
	if err != nil {
		return fmt.Errorf("etcd cannot serve the data in %s: %w (details in %s; move the folder away to begin with an "+
			"empty cluster)", c.cfg.DataDir, err, filepath.Join(c.cfg.LogDir, "etcd.log"))
	}
	c.etcd = &etcdServer{e}
	watch, cancel := context.WithCancel(context.Background())
	c.guard = &component{cancel: cancel}
	c.run(watch, c.guard, "etcd", func(ctx context.Context) error {
		select {
		case msg := <-last.said:
			return errors.New(msg)
		case <-ctx.Done():
			return nil
		}
	})
	select {
	case <-e.Server.ReadyNotify():
	case err := <-e.Err():
		return fmt.Errorf("etcd (data in %s): %w", c.cfg.DataDir, err)
	case <-time.After(etcdStartTimeout):
		return fmt.Errorf("etcd not ready within %s (see %s)", etcdStartTimeout, filepath.Join(c.cfg.LogDir, "etcd.log"))
	case <-ctx.Done():
		return ctx.Err()
	}
	c.cfg.Progress("etcd")
	return nil
}

// openEtcd starts etcd. Where its files are damaged it neither returns nor fails, but logs a last
// message.
func openEtcd(cfg *embed.Config, last *lastWords) (*embed.Etcd, error) {
	type result struct {
		e   *embed.Etcd
		err error
	}
	done := make(chan result, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				done <- result{err: fmt.Errorf("%v", r)}
			}
		}()
		e, err := embed.StartEtcd(cfg)
		done <- result{e, err}
	}()
	select {
	case r := <-done:
		return r.e, r.err
	case msg := <-last.said:
		return nil, errors.New(msg)
	}
}

// lastWords takes the message with which etcd would end or crash the process and ends only the
// goroutine that logged it, so that the cluster can stop in good order and say why.
type lastWords struct{ said chan string }

// OnWrite implements zapcore.CheckWriteHook.
func (l *lastWords) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	msg := entry.Message
	for _, f := range fields {
		if err, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			msg += ": " + err.Error()
		}
	}
	select {
	case l.said <- msg:
	default: // the first one counts
	}
	runtime.Goexit()
}

func etcdConfig(cfg Config, creds *credentials, last *lastWords) (*embed.Config, error) {
	if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	client := url.URL{Scheme: "https", Host: hostPort(cfg.Host, cfg.EtcdPort)}
	peer := url.URL{Scheme: "https", Host: hostPort(cfg.Host, cfg.EtcdPeerPort)}
	tls := transport.TLSInfo{
		CertFile:       creds.etcd.CertFile,
		KeyFile:        creds.etcd.KeyFile,
		TrustedCAFile:  cfg.PKI.CAFile(),
		ClientCertAuth: true,
	}
	e := embed.NewConfig()
	e.Name = "standalone"
	e.Dir = cfg.DataDir
	e.ListenClientUrls, e.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	e.ListenPeerUrls, e.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	e.InitialCluster = e.InitialClusterFromName(e.Name)
	e.ClientTLSInfo, e.PeerTLSInfo = tls, tls
	e.AutoCompactionMode = embed.CompactorModePeriodic
	e.AutoCompactionRetention = compactionRetention
	e.QuotaBackendBytes = quotaBytes
	e.UnsafeNoFsync = cfg.UnsafeNoFsync
	e.ZapLoggerBuilder = embed.NewZapLoggerBuilder(etcdLogger(cfg.LogDir, last))
	return e, nil
}

func etcdLogger(dir string, last *lastWords) *zap.Logger {
	enc := zap.NewProductionEncoderConfig()
	enc.EncodeTime = zapcore.ISO8601TimeEncoder
	sink := zapcore.AddSync(RotatedLog(filepath.Join(dir, "etcd.log")))
	core := zapcore.NewCore(zapcore.NewConsoleEncoder(enc), sink, zap.InfoLevel)
	return zap.New(core, zap.WithFatalHook(last), zap.WithPanicHook(last))
}

// stop closes etcd; a closed etcd has its log synced.
func (s *etcdServer) stop(timeout time.Duration) {
	done := make(chan struct{})
	go func() { s.e.Close(); close(done) }()
	select {
	case <-done:
	case <-time.After(timeout):
	}
}

var errNotReady = errors.New("not ready")
