package manager

import (
	"log/slog"
	"strings"
	"testing"
)

func TestConfig(t *testing.T) {
	good := Config{
		EngineImage: "e", InstanceManagerImage: "i", ManagerImage: "m",
		Common: Common{PodName: "p", Namespace: "ns", PodIP: "127.0.1.1", NodeName: "n"},
	}
	c, err := good.Complete()
	if err != nil || c.Listen != "127.0.1.1:9500" || c.WebhookListen != "127.0.1.1:9502" ||
		c.HealthListen != "127.0.1.1:9504" {
		t.Fatalf("%+v, %v", c, err)
	}
	for _, tt := range []struct {
		name string
		edit func(*Config)
		want string
	}{
		{"no engine image", func(c *Config) { c.EngineImage = "" }, "--engine-image"},
		{"no namespace", func(c *Config) { c.Namespace = "" }, "POD_NAMESPACE"},
		{"no address", func(c *Config) { c.PodIP = "" }, "POD_IP"},
		{"address that is a name", func(c *Config) { c.PodIP = "localhost" }, "POD_IP"},
		{"wildcard", func(c *Config) { c.Listen = "0.0.0.0:9500" }, "wildcard"},
		{"IPv6 wildcard", func(c *Config) { c.WebhookListen = "[::]:9502" }, "wildcard"},
		{"wildcard as a further address", func(c *Config) { c.ListenAlso = ":9500" }, "--listen-also"},
		{"no host", func(c *Config) { c.Listen = ":9500" }, "wildcard"},
		{"no port", func(c *Config) { c.Listen = "127.0.0.1" }, "host:port"},
		{"webhooks without TLS", func(c *Config) { c.WebhookURL = "http://x" }, "--webhook-url"},
	} {
		c := good
		tt.edit(&c)
		if _, err := c.Complete(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
	_, err = Config{}.Complete()
	for _, want := range []string{"--engine-image", "--manager-image", "POD_NAME", "NODE_NAME", "POD_IP"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("an empty configuration: %v does not name %s", err, want)
		}
	}
}

func TestLevelOf(t *testing.T) {
	for value, want := range map[string]slog.Level{
		"Info": slog.LevelInfo, "debug": slog.LevelDebug, "Trace": slog.LevelDebug, "Warn": slog.LevelWarn,
		"Error": slog.LevelError, "Panic": slog.LevelError, "": slog.LevelInfo,
	} {
		if got := levelOf(value); got != want {
			t.Errorf("levelOf(%q) = %v, want %v", value, got, want)
		}
	}
}
