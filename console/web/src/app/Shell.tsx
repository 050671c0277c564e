import { Link, Outlet, useNavigate } from "@tanstack/react-router";
import { CircleHelp, Ellipsis, Inbox, LayoutList, LogOut, type LucideIcon, Monitor, Moon, Play, Server, Sun, UnplugIcon, UserRound } from "lucide-react";
import { useEffect, useState } from "react";
import { signOut } from "@/api/client";
import { queryClient, useAsks, useMe } from "@/api/queries";
import { failure } from "@/lib/lost";
import { oneLine } from "@/lib/text";
import { Button } from "@/ui/Button";
import { Dialog } from "@/ui/Dialog";
import { Kbd } from "@/ui/Kbd";
import { Menu } from "@/ui/Menu";
import { sayError } from "@/ui/Toast";
import { forgetDrafts } from "./draft";
import { useHotkeys } from "./hotkeys";
import { startNews, stopNews, useConnection } from "./news";
import { setTheme, type Theme, useTheme } from "./theme";

type Place = "/threads" | "/inbox" | "/start" | "/operations";

const places: { to: Place; label: string; key: string; icon: LucideIcon }[] = [
  { to: "/threads", label: "Threads", key: "g t", icon: LayoutList },
  { to: "/inbox", label: "Inbox", key: "g i", icon: Inbox },
  { to: "/start", label: "Start", key: "g s", icon: Play },
  { to: "/operations", label: "Operations", key: "g o", icon: Server },
];

export function Shell() {
  const navigate = useNavigate();
  const [help, setHelp] = useState(false);
  const go = (to: Place) => () => void navigate({ to });
  useHotkeys({ "g t": go("/threads"), "g i": go("/inbox"), "g s": go("/start"), "g o": go("/operations"), "?": () => setHelp(true) });
  useEffect(() => {
    startNews();
    return stopNews;
  }, []);
  return (
    <div className="relative flex h-full flex-col overflow-clip sm:flex-row">
      <a href="#main" className="sr-only focus:not-sr-only focus:absolute focus:z-50 focus:m-2 focus:rounded focus:bg-raised focus:p-2">
        Skip to the page
      </a>
      <Rail onHelp={() => setHelp(true)} />
      <div className="order-1 flex min-h-0 min-w-0 flex-1 flex-col sm:order-2">
        <Lost />
        <main id="main" tabIndex={-1} className="flex min-h-0 flex-1 flex-col outline-none">
          <Outlet />
        </main>
      </div>
      <Help open={help} onClose={() => setHelp(false)} />
    </div>
  );
}

const railItem =
  "relative flex h-13 flex-1 flex-col items-center justify-center gap-0.5 rounded text-xs text-soft hover:bg-hover hover:text-text sm:h-8 sm:flex-none sm:flex-row sm:justify-start sm:gap-2 sm:px-2 sm:text-sm [&_svg]:size-4.5 sm:[&_svg]:size-4";

function Rail({ onHelp }: { onHelp(): void }) {
  const asks = useAsks();
  const open = asks.data?.asks?.length ?? 0;
  return (
    <nav
      aria-label="Pages"
      className="order-2 flex shrink-0 border-t border-line bg-panel pb-[env(safe-area-inset-bottom)] sm:order-1 sm:w-44 sm:flex-col sm:gap-0.5 sm:border-t-0 sm:border-r sm:p-2"
    >
      <Link to="/threads" className="mb-2 hidden items-center gap-2 rounded px-2 py-1.5 sm:flex">
        <Mark />
        <span className="text-base font-semibold">Perdure</span>
      </Link>
      {places.map(({ to, label, key, icon: Icon }) => (
        <Link
          key={to}
          to={to}
          title={`${label} (${key})`}
          className={railItem}
          activeProps={{ className: "bg-selected font-medium !text-text", "aria-current": "page" }}
        >
          <Icon aria-hidden />
          {label}
          {to === "/inbox" && open > 0 && (
            <span
              aria-label={`${open} open`}
              className="absolute top-1 left-[calc(50%+0.5rem)] min-w-4.5 rounded-full bg-ask-tint px-1 text-center text-xs font-semibold text-ask tabular-nums sm:static sm:ml-auto sm:px-1.5"
            >
              {open > 999 ? "999+" : open}
            </span>
          )}
        </Link>
      ))}
      <div className="contents sm:hidden">
        <More />
      </div>
      <div className="hidden flex-1 sm:block" />
      <div className="hidden items-center gap-1 sm:flex">
        <Who />
        <ThemeSwitch />
        <Button look="quiet" size="small" icon={<CircleHelp aria-hidden />} aria-label="Keys and help" title="Keys and help (?)" onClick={onHelp} />
      </div>
    </nav>
  );
}

const Mark = () => (
  <svg viewBox="0 0 32 32" aria-hidden className="size-6">
    <rect width="32" height="32" rx="7" className="fill-accent-fill" />
    <path d="M8 11h16M8 16h7m4 0h5M8 21h12" stroke="#fff" strokeWidth="2.6" strokeLinecap="round" />
    <circle cx="17" cy="16" r="1.6" fill="#fbbf24" />
  </svg>
);

const themes: { value: Theme; label: string; icon: LucideIcon }[] = [
  { value: "system", label: "Like the system", icon: Monitor },
  { value: "light", label: "Light", icon: Sun },
  { value: "dark", label: "Dark", icon: Moon },
];

export function ThemeSwitch() {
  const theme = useTheme();
  const Icon = themes.find((t) => t.value === theme)?.icon ?? Monitor;
  return (
    <Menu
      label="Colours"
      trigger={<Button look="quiet" size="small" icon={<Icon aria-hidden />} aria-label="Colours" title="Colours" />}
      items={themes.map(({ value, label, icon: Each }) => ({ label, icon: <Each aria-hidden />, checked: value === theme, onSelect: () => setTheme(value) }))}
    />
  );
}

function useLeave() {
  const navigate = useNavigate();
  return async () => {
    try {
      await signOut();
    } catch (error) {
      return sayError(...failure("You are still signed in", error, "The request to sign out", "The server does not answer. Sign out again later."));
    }
    forgetDrafts();
    queryClient.clear();
    void navigate({ to: "/login" });
  };
}

function Who() {
  const { data: me, isPending } = useMe();
  const leave = useLeave();
  if (isPending) return <span className="flex-1" />;
  return (
    <Menu
      label="Account"
      align="start"
      trigger={
        <Button look="quiet" size="small" className="min-w-0 flex-1 justify-start" icon={<UserRound aria-hidden />}>
          <bdi className="truncate">{me ? oneLine(me.subject, 80) : "Account"}</bdi>
        </Button>
      }
      items={[
        ...(me ? [{ label: `May ${me.scopes.join(", ")}`, disabled: true, onSelect: () => {} }] : []),
        ...(me?.tenant ? [{ label: `Tenant ${me.tenant}`, disabled: true, onSelect: () => {} }] : []),
        "line" as const,
        { label: "Sign out", icon: <LogOut aria-hidden />, onSelect: () => void leave() },
      ]}
    />
  );
}

/** What the foot of the rail has, on a phone. */
function More() {
  const theme = useTheme();
  const leave = useLeave();
  return (
    <Menu
      label="More"
      trigger={
        <button type="button" className={railItem}>
          <Ellipsis aria-hidden />
          More
        </button>
      }
      items={[
        ...themes.map(({ value, label, icon: Each }) => ({ label, icon: <Each aria-hidden />, checked: value === theme, onSelect: () => setTheme(value) })),
        "line" as const,
        { label: "Sign out", icon: <LogOut aria-hidden />, onSelect: () => void leave() },
      ]}
    />
  );
}

/** Says that the connection is lost. What is on the page stays. */
function Lost() {
  const state = useConnection();
  return (
    <div role="status" aria-live="polite">
      {state === "lost" && (
        <p className="flex items-center justify-center gap-2 border-b border-line bg-bad-tint px-4 py-1.5 text-bad">
          <UnplugIcon aria-hidden className="size-4" />
          No connection to the server. The page shows what it last knew, and catches up by itself.
        </p>
      )}
    </div>
  );
}

const helpKeys: [string[], string][] = [
  [["g", "t"], "Threads"],
  [["g", "i"], "Inbox"],
  [["g", "s"], "Start"],
  [["g", "o"], "Operations"],
  [["/"], "Search"],
  [["j"], "Next row"],
  [["k"], "Previous row"],
  [["Enter"], "Open"],
  [["a"], "Approve, in the inbox"],
  [["e"], "Edit, in the inbox"],
  [["r"], "Reject, in the inbox"],
  [["x"], "Select, in the inbox"],
  [["Esc"], "Close"],
  [["?"], "This help"],
];

const Help = ({ open, onClose }: { open: boolean; onClose(): void }) => (
  <Dialog open={open} onClose={onClose} title="Keys">
    <dl className="grid grid-cols-[auto_1fr] gap-x-4 gap-y-2">
      {helpKeys.map(([pressed, what]) => (
        <div key={what} className="contents">
          <dt className="flex gap-1">
            {pressed.map((key) => (
              <Kbd key={key}>{key}</Kbd>
            ))}
          </dt>
          <dd>{what}</dd>
        </div>
      ))}
    </dl>
  </Dialog>
);
