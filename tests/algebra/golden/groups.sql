-- SELECT a, count(DISTINCT b) AS n, median(b) AS middle FROM r GROUP BY a

-- @: groups, key a, changes paired
SELECT
  `a`,
  `n`,
  `middle`,
  `_hw_rows`,
  `_hw_old_a`,
  `_hw_old_n`,
  `_hw_old_middle`,
  `_hw_old__hw_rows`,
  `_hw_file`,
  `_hw_position`,
  `_hw_row`,
  `_hw_is`,
  `_hw_was`,
  `_hw_side_a__hw_old_a`
FROM (
  SELECT
    `a` AS `a`,
    `n` AS `n`,
    `middle` AS `middle`,
    `_hw_rows` AS `_hw_rows`,
    `_hw_old_a` AS `_hw_old_a`,
    `_hw_old_n` AS `_hw_old_n`,
    `_hw_old_middle` AS `_hw_old_middle`,
    `_hw_old__hw_rows` AS `_hw_old__hw_rows`,
    `_hw_file` AS `_hw_file`,
    `_hw_position` AS `_hw_position`,
    `_hw_row` AS `_hw_row`,
    COALESCE(`_hw_is_now`, FALSE) AS `_hw_is`,
    NOT `_hw_row` IS NULL AS `_hw_was`,
    `_hw_side_a__hw_old_a`
  FROM (
    SELECT
      `a`,
      `n`,
      `middle`,
      `_hw_rows`,
      `_hw_is_now`,
      `_hw_old_a`,
      `_hw_old_n`,
      `_hw_old_middle`,
      `_hw_old__hw_rows`,
      `_hw_file`,
      `_hw_position`,
      `_hw_row`,
      CASE WHEN `_hw_in_left` IS NULL THEN 2 WHEN `_hw_in_right` IS NULL THEN 1 ELSE 0 END AS `_hw_side_a__hw_old_a`
    FROM (
      SELECT
        `a`,
        `n`,
        `middle`,
        `_hw_rows`,
        `_hw_is_now`,
        TRUE AS `_hw_in_left`
      FROM (
        SELECT
          `a` AS `a`,
          `n` AS `n`,
          `middle` AS `middle`,
          `_hw_rows` AS `_hw_rows`,
          TRUE AS `_hw_is_now`
        FROM (
          SELECT
            `a` AS `a`,
            `n` AS `n`,
            `middle` AS `middle`,
            `_hw_rows` AS `_hw_rows`
          FROM (
            SELECT
              `a` AS `a`,
              `n` AS `n`,
              `middle` AS `middle`,
              `_hw_rows` AS `_hw_rows`
            FROM (
              SELECT
                `a`,
                COUNT(*) AS `_hw_rows`,
                COUNT(DISTINCT `b`) AS `n`,
                MEDIAN(`b`) AS `middle`
              FROM (
                SELECT
                  _l.`a`,
                  _l.`b`,
                  _l.`r_rowid`
                FROM (
                  SELECT
                    `a` AS `a`,
                    `b` AS `b`,
                    `rowid` AS `r_rowid`
                  FROM `r@new`
                ) AS _l
                LEFT SEMI JOIN (
                  SELECT
                    `_hw_key_0`
                  FROM (
                    SELECT
                      `a` AS `_hw_key_0`,
                      `r_rowid`,
                      `_hw_w`
                    FROM (
                      SELECT
                        `a` AS `a`,
                        `b` AS `b`,
                        `rowid` AS `r_rowid`,
                        `_hw_w`
                      FROM `r@delta`
                    ) AS _t
                  ) AS _t
                  GROUP BY
                    `_hw_key_0`
                ) AS _r
                  ON `a` IS NOT DISTINCT FROM `_hw_key_0`
              ) AS _t
              GROUP BY
                `a`
            ) AS _t
          ) AS _t
        ) AS _t
      ) AS _t
    ) AS _l
    FULL JOIN (
      SELECT
        `_hw_old_a`,
        `_hw_old_n`,
        `_hw_old_middle`,
        `_hw_old__hw_rows`,
        `_hw_file`,
        `_hw_position`,
        `_hw_row`,
        TRUE AS `_hw_in_right`
      FROM (
        SELECT
          _l.`_hw_old_a`,
          _l.`_hw_old_n`,
          _l.`_hw_old_middle`,
          _l.`_hw_old__hw_rows`,
          _l.`_hw_file`,
          _l.`_hw_position`,
          _l.`_hw_row`
        FROM (
          SELECT
            `a` AS `_hw_old_a`,
            `n` AS `_hw_old_n`,
            `middle` AS `_hw_old_middle`,
            `_hw_rows` AS `_hw_old__hw_rows`,
            `_hw_file` AS `_hw_file`,
            `_hw_position` AS `_hw_position`,
            `_hw_row` AS `_hw_row`
          FROM `@@old`
        ) AS _l
        LEFT SEMI JOIN (
          SELECT
            `_hw_key_0`
          FROM (
            SELECT
              `a` AS `_hw_key_0`,
              `r_rowid`,
              `_hw_w`
            FROM (
              SELECT
                `a` AS `a`,
                `b` AS `b`,
                `rowid` AS `r_rowid`,
                `_hw_w`
              FROM `r@delta`
            ) AS _t
          ) AS _t
          GROUP BY
            `_hw_key_0`
        ) AS _r
          ON `_hw_old_a` IS NOT DISTINCT FROM `_hw_key_0`
      ) AS _t
    ) AS _r
      ON `a` IS NOT DISTINCT FROM `_hw_old_a`
  ) AS _t
) AS _t
WHERE
  (
    `_hw_is` OR `_hw_was`
  )
  AND (
    NOT (
      (
        `_hw_is` AND `_hw_was`
      )
      AND (
        `a` IS NOT DISTINCT FROM `_hw_old_a`
        AND `n` IS NOT DISTINCT FROM `_hw_old_n`
        AND `middle` IS NOT DISTINCT FROM `_hw_old_middle`
        AND `_hw_rows` IS NOT DISTINCT FROM `_hw_old__hw_rows`
      )
    )
  )
