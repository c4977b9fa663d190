import { PageSection, Tab, Tabs, TabTitleText } from "@patternfly/react-core";
import { useEffect, type ReactNode } from "react";

interface Props {
  label: string;
  tabs: readonly { readonly key: string; readonly label: string }[];
  active: string;
  onSelect: (key: string) => void;
  children: ReactNode;
}

const TABS_ID = "page-tabs";
const tabId = (key: string): string => `pf-tab-${key}-${TABS_ID}`;
const panelId = (key: string): string => `panel-${key}`;

const middle = (element: Element): number => {
  const { left, width } = element.getBoundingClientRect();
  return left + width / 2;
};

/** Tabs of a page whose choice is a part of the address, and the panel of the one that is shown. */
export function PageTabs({ label, tabs, active, onSelect, children }: Props) {
  useEffect(() => {
    const tab = document.getElementById(tabId(active));
    const list = tab?.closest("ul");
    if (!tab || !list) return undefined;
    const center = (): void => {
      // not scrollIntoView: it would also move what is around the tabs
      list.scrollLeft += middle(tab) - middle(list);
    };
    center();
    const observer = new ResizeObserver(center); // buttons to scroll come once it is known that the tabs do not fit
    observer.observe(list);
    return () => observer.disconnect();
  }, [active]);
  return (
    <>
      <PageSection type="tabs" hasBodyWrapper={false}>
        <Tabs id={TABS_ID} activeKey={active} onSelect={(_, key) => onSelect(String(key))} aria-label={label} usePageInsets>
          {tabs.map((tab) => (
            <Tab key={tab.key} eventKey={tab.key} title={<TabTitleText>{tab.label}</TabTitleText>} tabContentId={panelId(tab.key)} />
          ))}
        </Tabs>
      </PageSection>
      <PageSection isFilled hasBodyWrapper={false} role="tabpanel" id={panelId(active)} aria-labelledby={tabId(active)}>
        {children}
      </PageSection>
    </>
  );
}
